//! Query parameters: declared once, for parsing and for the OpenAPI document; whatever is not declared is refused.

use tracehound_query::sorting::{MAX_SORT_KEYS, SortKeys};

use super::problem::HttpProblem;

/// A parameter's text turned into a value; the error says what is accepted.
pub trait FromText: Sized {
    /// Reads `text`.
    fn from_text(text: &str) -> Result<Self, String>;
}

impl FromText for String {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl FromText for bool {
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err("true or false".into()),
        }
    }
}

impl<T: FromText> FromText for Option<T> {
    fn from_text(text: &str) -> Result<Self, String> {
        T::from_text(text).map(Some)
    }
}

impl<T: FromText + Copy + PartialEq> FromText for SortKeys<T> {
    fn from_text(text: &str) -> Result<Self, String> {
        let key = |part: &str| {
            let (column, reversed) = part.strip_prefix('-').map_or((part, false), |column| (column, true));
            T::from_text(column).map(|column| (column, reversed))
        };
        let keys = text.split(',').map(key).collect::<Result<Vec<_>, _>>();
        keys.map_err(|columns| format!("up to {MAX_SORT_KEYS} of {columns}, separated by commas; - reverses one"))
            .and_then(|keys| Self::new(keys).ok_or_else(|| format!("at most {MAX_SORT_KEYS} columns")))
    }
}

/// A whole number with bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Within<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> FromText for Within<MIN, MAX> {
    fn from_text(text: &str) -> Result<Self, String> {
        let value = text.parse().ok().filter(|value| (MIN..=MAX).contains(value));
        value.map(Self).ok_or_else(|| format!("a whole number from {MIN} to {MAX}"))
    }
}

/// A parameter by its name, whatever else there is.
pub fn first(query: Option<&str>, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
}

/// The pairs of a query string that nobody has asked for yet.
pub struct Params {
    pairs: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl Params {
    /// Splits a query string; a name that occurs twice is refused.
    pub fn parse(query: Option<&str>) -> Result<Self, HttpProblem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(HttpProblem::parameter(name.clone(), format!("the parameter {name:?} is given twice")));
            }
            pairs.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self { pairs, known: Vec::new() })
    }

    /// The value of a parameter; an empty one counts as absent.
    pub fn take<T: FromText>(&mut self, name: &'static str) -> Result<Option<T>, HttpProblem> {
        self.known.push(name);
        let Some(at) = self.pairs.iter().position(|(known, _)| known == name) else { return Ok(None) };
        let (_, text) = self.pairs.swap_remove(at);
        if text.is_empty() {
            return Ok(None);
        }
        T::from_text(&text).map(Some).map_err(|accepted| {
            HttpProblem::parameter(name, format!("{name}={text:?} is not understood; accepted: {accepted}"))
        })
    }

    /// As [`Self::take`], for a parameter that must be there.
    pub fn require<T: FromText>(&mut self, name: &'static str) -> Result<T, HttpProblem> {
        self.take(name)?.ok_or_else(|| HttpProblem::parameter(name, format!("the parameter {name:?} is missing")))
    }

    /// Refuses what is left.
    pub fn finish(self) -> Result<(), HttpProblem> {
        let Some((name, _)) = self.pairs.first() else { return Ok(()) };
        let known = match self.known.as_slice() {
            [] => "none".to_owned(),
            known => known.join(", "),
        };
        Err(HttpProblem::parameter(name, format!("there is no parameter {name:?} here; known: {known}")))
    }
}

/// Parameters of a route, or a group of parameters that several routes share.
pub trait Query: Sized {
    /// Takes its parameters out of `params`.
    fn take(params: &mut Params) -> Result<Self, HttpProblem>;
}

/// Reads all of a query string as `Q`.
pub fn read<Q: Query>(query: Option<&str>) -> Result<Q, HttpProblem> {
    let mut params = Params::parse(query)?;
    let read = Q::take(&mut params)?;
    params.finish()?;
    Ok(read)
}

impl Query for () {
    fn take(_params: &mut Params) -> Result<Self, HttpProblem> {
        Ok(())
    }
}

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<$($name: Query),+> Query for ($($name,)+) {
            fn take(params: &mut Params) -> Result<Self, HttpProblem> {
                Ok(($($name::take(params)?,)+))
            }
        }
    };
}
tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);

/// Declares a struct of parameters: each field with its type and what counts when it is absent.
macro_rules! parameters {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty = $default:expr,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, utoipa::IntoParams)]
        #[into_params(parameter_in = Query)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $crate::http::params::Query for $name {
            fn take(params: &mut $crate::http::params::Params) -> std::result::Result<Self, $crate::http::problem::HttpProblem> {
                Ok(Self { $($field: params.take::<$type>(stringify!($field))?.unwrap_or_else(|| $default),)* })
            }
        }
    };
}
pub(crate) use parameters;

#[cfg(test)]
mod tests {
    use super::*;

    parameters! {
        /// For tests.
        Sample {
            /// A number.
            #[param(value_type = Option<u64>)]
            limit: Within<1, 10> = Within(5),
            /// A text.
            search: Option<String> = None,
            /// Some order.
            #[param(value_type = Option<String>)]
            sort: SortKeys<bool> = true.into(),
        }
    }

    #[test]
    fn orders_are_columns_with_commas() {
        let sort = |query: &str| read::<Sample>(Some(query)).unwrap().sort;
        assert_eq!(sort(""), true.into());
        assert_eq!(Some(sort("sort=false,-true")), SortKeys::new([(false, false), (true, true)]));
        assert!(detail("sort=true,sideways").contains("up to 4 of true or false"));
        assert!(detail("sort=true,").contains("up to 4 of"));
    }

    fn detail(query: &str) -> String {
        format!("{:?}", read::<Sample>(Some(query)).unwrap_err())
    }

    #[test]
    fn absent_parameters_have_defaults() {
        for query in ["", "limit=", "search="] {
            let sample = read::<Sample>(Some(query)).unwrap();
            assert_eq!((sample.limit, sample.search), (Within(5), None), "{query}");
        }
        let sample = read::<Sample>(Some("search=a%26b+c&limit=7")).unwrap();
        assert_eq!((sample.limit, sample.search.as_deref()), (Within(7), Some("a&b c")));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert!(detail("limit=11").contains("1 to 10"));
        assert!(detail("limit=-1").contains("1 to 10"));
        assert!(detail("limits=3").contains("limits"));
        assert!(detail("limits=3").contains("known: limit, search"));
        assert!(detail("limit=3&limit=4").contains("twice"));
    }
}
