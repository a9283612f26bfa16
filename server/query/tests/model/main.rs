//! A naive reference: all events in a vector, every answer by brute force. Random traces with threads, reallocs,
//! unmatched frees, pools, mappings, windows and filters; the engine must agree to the byte.

mod ask;
mod check;
mod damage;
mod follow;
mod order;
mod program;
mod reference;
mod script;
mod symbols;
