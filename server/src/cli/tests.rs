//! Goldens of what people see.
