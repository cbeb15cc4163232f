//! Options whose values are the words of a switch.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use marcato_units::Worded;

/// Returns the parser of an option whose values are the words of `T`, each with its help.
pub(crate) fn words<T: Worded + Send + Sync>(
    help: impl Fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let values = T::WORDS.iter().map(|(word, value)| PossibleValue::new(*word).help(help(*value)));
    PossibleValuesParser::new(values)
        .try_map(|word| T::of_word(&word).ok_or_else(|| format!("`{word}` is none of the words: see --help")))
}
