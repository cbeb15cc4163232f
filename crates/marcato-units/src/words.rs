//! Words of switches.

/// Word of a closed list, with its meaning.
pub type Word<T> = (&'static str, T);

/// Closed list of values, each with a word for files, command lines and output.
pub trait Worded: Copy + PartialEq + 'static {
    /// All words.
    const WORDS: &'static [Word<Self>];

    /// Returns the value of a word.
    fn of_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(one, _)| *one == word).map(|(_, value)| *value)
    }
}

/// Declares an enum without fields together with the words for its values. It is displayed as its word.
///
/// ```
/// use marcato_units::{Worded, words};
///
/// words! {
///     /// Position of a valve.
///     #[derive(Default)]
///     pub enum Valve {
///         /// No flow.
///         #[default]
///         Shut = "shut",
///         /// Full flow.
///         Open = "open",
///     }
/// }
///
/// assert_eq!((Valve::of_word("open"), Valve::of_word("ajar")), (Some(Valve::Open), None));
/// assert_eq!((Valve::default().name(), Valve::Open.to_string()), ("shut", "open".to_owned()));
/// ```
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$attribute:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $($(#[$attribute])* $variant),+ }

        impl $name {
            /// Returns the word for the value.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl $crate::Worded for $name {
            const WORDS: &'static [$crate::Word<Self>] = &[$(($word, Self::$variant)),+];
        }
    };
}
