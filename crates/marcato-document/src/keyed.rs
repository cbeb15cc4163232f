//! Tables whose keys are declared once.
//!
//! A declaration with [`keyed!`] names each key with its meaning, the field that it sets, the form
//! of its value and its default. The reader, the writer and the schema follow from it; the tables
//! of the reference in `docs/` follow from the schema.

use crate::document::Table;
use crate::faults::Faults;
use crate::keys::Keys;
use crate::pairs::Pairs;
use crate::schema::{Entry, Schema};

/// Value of a table. `C` is what the reader needs to know beside the table, such as the rate of the
/// link that a queue belongs to.
pub trait Keyed<C = ()>: Sized {
    /// Keys of the table, except for `kind`.
    const ENTRIES: &'static [&'static [Entry]];
    /// Keys of the table.
    const SCHEMA: Schema;

    /// Reads the table. Returns `None` after a fault that leaves no value.
    fn read(keys: &Keys<'_>, context: &C) -> Option<Self>;

    /// Reads the table after a check that all of its keys are known.
    fn open(table: &Table, faults: &Faults, context: &C) -> Option<Self> {
        Self::read(&Keys::open(table, &Self::SCHEMA, faults), context)
    }
}

/// Value of a table that can be written as well.
pub trait WriteKeyed<C = ()>: Keyed<C> {
    /// Adds all keys with their values.
    fn write(&self, pairs: &mut Pairs);
}

impl<C, T: Keyed<C>> Keyed<C> for Box<T> {
    const ENTRIES: &'static [&'static [Entry]] = T::ENTRIES;
    const SCHEMA: Schema = T::SCHEMA;

    fn read(keys: &Keys<'_>, context: &C) -> Option<Self> {
        T::read(keys, context).map(Self::new)
    }
}

impl<C, T: WriteKeyed<C>> WriteKeyed<C> for Box<T> {
    fn write(&self, pairs: &mut Pairs) {
        (**self).write(pairs);
    }
}

/// Form of a value in a file, under one key or several.
pub trait Form<C> {
    /// Value in memory.
    type Value;

    /// Reads the value; `None` if it is missing, or after a fault.
    fn read(&self, keys: &Keys<'_>, names: &[&'static str], context: &C) -> Option<Self::Value>;
}

/// Form of a value that can be written as well.
pub trait WriteForm<C>: Form<C> {
    /// Adds the value.
    fn write(&self, value: &Self::Value, names: &[&'static str], pairs: &mut Pairs);
}

/// Returns the written form of a default.
pub fn written<C, F: WriteForm<C>>(form: &F, value: &F::Value, name: &'static str) -> String {
    let mut pairs = Pairs::new();
    form.write(value, &[name], &mut pairs);
    pairs.into_first()
}

/// Declares the keys of a table, and implements [`Keyed`] for the type that it is read as.
///
/// Each line has the keys with their meanings, the field, the [`Form`] and the default:
///
/// - `or(value)`: default that needs no context; its text follows from it.
/// - `or(value; "text", …)`: default that may use the context, with a text for each key.
/// - `optional("text", …)`: the field is an `Option`, `None` without the key.
/// - `need("advice")`: required; `need("advice"; value)` reads on with that value.
/// - `must("text", …)`: the form reports a missing value itself.
///
/// With `onto BASE`, the value is read onto another, whose type may belong to another crate, and which
/// has the defaults. Such a table is only read:
///
/// - `own()`: default of the base, whose text follows from it; `own("text")`: with this text.
/// - `optional("text")`: the field is an `Option`.
/// - `need("advice")`: required.
///
/// ```
/// use marcato_document::form::{Count, SpanWithin};
/// use marcato_document::quantity::Of;
/// use marcato_document::{Faults, Format, Keyed, Sources, keyed, parse};
/// use marcato_units::Duration;
///
/// struct Limits { idle: Duration, streams: usize }
///
/// keyed! {
///     Limits, "the file", |_of: ()|, onto Self { idle: Duration::from_secs(75), streams: 128 };
///     /// time without a request
///     "idle" => idle: SpanWithin(Duration::ZERO..=Duration::from_secs(3600)), own();
///     /// requests at once
///     "streams" => streams: Count(1..=1000), own();
/// }
///
/// static FORMAT: Format = Format { root: &Limits::SCHEMA, whole: "the whole file", unit: |_, of| of.usual() };
/// let read = |text: &str| {
///     let sources = Sources(vec![("limits.toml".to_owned(), text.to_owned())]).into();
///     let faults = Faults::new(&FORMAT, &sources);
///     let (table, _) = parse(0, text, &[], |place, problem| faults.add(place, problem));
///     let limits = Limits::open(&table, &faults, &());
///     faults.into_result().map(|()| limits)
/// };
/// let limits = read("idle = \"20 s\"")?.unwrap();
/// assert_eq!((limits.idle.as_secs(), limits.streams), (20, 128));
/// let error = read("idel = \"20 s\"\nstreams = 0").map(|_| ()).unwrap_err();
/// let problems: Vec<&str> = error.faults().iter().map(|fault| fault.problem.as_str()).collect();
/// assert_eq!(
///     problems,
///     ["`idel` is not a key of the file: did you mean `idle`?", "`streams` is 1 to 1000, not 0"]
/// );
/// assert_eq!(Limits::SCHEMA.entries[0][1].rows(), ["| `streams` | requests at once | `128` |"]);
/// # Ok::<(), marcato_document::Report>(())
/// ```
///
/// `kinded` tables have a `kind`. `flatten` includes the keys of a field's own table, `beside` those
/// of another table that shares this one.
#[macro_export]
macro_rules! keyed {
    (
        $type:ty, $what:literal $($kinded:ident)?, |$context:ident: $of:ty|
        $(, beside $beside:ty, |$beside_of:ty|)?
        $(, flatten $inner:ident: $inner_type:ty, |$inner_of:ty| = $inner_context:expr)*
        $(, check $check:expr)?;
        $(
            $( $(#[doc = $meaning:literal])+ $key:literal ),+
            => $field:ident: $form:expr, $mode:ident($($arg:tt)*);
        )*
        $(..$base:expr)?
    ) => {
        impl $crate::Keyed<$of> for $type {
            const ENTRIES: &'static [&'static [$crate::schema::Entry]] = &[
                $(<$beside as $crate::Keyed<$beside_of>>::ENTRIES[0],)?
                $(<$inner_type as $crate::Keyed<$inner_of>>::ENTRIES[0],)*
                &[$($crate::schema::Entry {
                    keys: &[$($crate::schema::Key { name: $key, meaning: concat!($($meaning),+) }),+],
                    usual: $crate::keyed!(@usual $of, $form, [$($key),+], $mode($($arg)*)),
                }),*],
            ];
            const SCHEMA: $crate::schema::Schema = $crate::schema::Schema {
                what: $what,
                keys: &[$($crate::keyed!(@$kinded))?],
                entries: <Self as $crate::Keyed<$of>>::ENTRIES,
            };

            fn read(keys: &$crate::Keys<'_>, $context: &$of) -> Option<Self> {
                #[allow(unused_imports, reason = "a table may have no form of its own")]
                use $crate::Form as _;
                $(let $inner = <$inner_type as $crate::Keyed<$inner_of>>::read(keys, &$inner_context);)*
                $(let $field = $crate::keyed!(@read keys, $context, $form, [$($key),+], $mode($($arg)*));)*
                #[allow(clippy::needless_update, reason = "some types have more fields than keys")]
                let read = Self { $($inner: $inner?,)* $($field: $field?,)* $(..$base)? };
                $(
                    let mut read = read;
                    ($check)(&mut read, keys, $context);
                )?
                Some(read)
            }
        }

        impl $crate::WriteKeyed<$of> for $type {
            fn write(&self, pairs: &mut $crate::Pairs) {
                $(<$inner_type as $crate::WriteKeyed<$inner_of>>::write(&self.$inner, pairs);)*
                $($crate::keyed!(@write $of, &self.$field, $form, [$($key),+], pairs, $mode);)*
            }
        }
    };
    (
        $type:ty, $what:literal, |$context:ident: $of:ty|, onto $base:expr
        $(, flatten $inner:ident: $inner_type:ty)*
        $(, check $check:expr)?;
        $(
            $(#[doc = $meaning:literal])+ $key:literal
            => $($field:ident).+: $form:expr, $mode:ident($($text:literal)?);
        )*
    ) => {
        impl $crate::Keyed<$of> for $type {
            const ENTRIES: &'static [&'static [$crate::schema::Entry]] = &[
                &[$($crate::schema::Entry {
                    keys: &[$crate::schema::Key { name: $key, meaning: concat!($($meaning),+) }],
                    usual: $crate::keyed!(@base_usual $of, $base, $($field).+, $form, $key, $mode($($text)?)),
                }),*],
                $(<$inner_type as $crate::Keyed<$of>>::ENTRIES[0],)*
            ];
            const SCHEMA: $crate::schema::Schema = $crate::schema::Schema {
                what: $what,
                keys: &[],
                entries: <Self as $crate::Keyed<$of>>::ENTRIES,
            };

            fn read(keys: &$crate::Keys<'_>, $context: &$of) -> Option<Self> {
                let mut read: Self = $base;
                $($crate::keyed!(@base_read read, $($field).+, keys, $context, $form, $key, $mode($($text)?));)*
                $(read.$inner = <$inner_type as $crate::Keyed<$of>>::read(keys, $context)?;)*
                $(($check)(&mut read, keys);)?
                Some(read)
            }
        }
    };
    (@kinded) => { &["kind"] };

    (@base_usual $of:ty, $base:expr, $($field:ident).+, $form:expr, $key:literal, own()) => {
        $crate::schema::Usual::Value(|| {
            let base: Self = $base;
            $crate::written::<$of, _>(&$form, &base.$($field).+, $key)
        })
    };
    (@base_usual $of:ty, $base:expr, $($field:ident).+, $form:expr, $key:literal, need($text:literal)) => {
        $crate::schema::Usual::Text(&["required"])
    };
    (@base_usual $of:ty, $base:expr, $($field:ident).+, $form:expr, $key:literal, $mode:ident($text:literal)) => {
        $crate::schema::Usual::Text(&[$text])
    };

    (@base_read $read:ident, $($field:ident).+, $keys:ident, $context:ident, $form:expr, $key:literal, optional($text:literal)) => {
        if let Some(value) = $crate::Form::read(&$form, $keys, &[$key], $context) {
            $read.$($field).+ = Some(value);
        }
    };
    (@base_read $read:ident, $($field:ident).+, $keys:ident, $context:ident, $form:expr, $key:literal, need($advice:literal)) => {
        $keys.need($key, $advice);
        if let Some(value) = $crate::Form::read(&$form, $keys, &[$key], $context) {
            // The field may be an `Option`, for which there is no other value to begin with.
            $read.$($field).+ = From::from(value);
        }
    };
    (@base_read $read:ident, $($field:ident).+, $keys:ident, $context:ident, $form:expr, $key:literal, own($($text:literal)?)) => {
        if let Some(value) = $crate::Form::read(&$form, $keys, &[$key], $context) {
            $read.$($field).+ = value;
        }
    };

    (@usual $of:ty, $form:expr, [$key:literal], or($default:expr)) => {
        $crate::schema::Usual::Value(|| $crate::written::<$of, _>(&$form, &$default, $key))
    };
    (@usual $of:ty, $form:expr, $keys:tt, or($default:expr; $($text:literal),+)) => {
        $crate::schema::Usual::Text(&[$($text),+])
    };
    (@usual $of:ty, $form:expr, $keys:tt, optional($($text:literal),+)) => {
        $crate::schema::Usual::Text(&[$($text),+])
    };
    (@usual $of:ty, $form:expr, $keys:tt, must($($text:literal),+)) => {
        $crate::schema::Usual::Text(&[$($text),+])
    };
    (@usual $of:ty, $form:expr, $keys:tt, need($advice:literal $(; $fallback:expr)?)) => {
        $crate::schema::Usual::Text(&["required"])
    };

    (@read $read:ident, $context:ident, $form:expr, $keys:tt, or($default:expr $(; $($text:literal),+)?)) => {
        Some($form.read($read, &$keys, $context).unwrap_or_else(|| $default))
    };
    (@read $read:ident, $context:ident, $form:expr, $keys:tt, optional($($text:literal),+)) => {
        Some($form.read($read, &$keys, $context))
    };
    (@read $read:ident, $context:ident, $form:expr, $keys:tt, must($($text:literal),+)) => {
        $form.read($read, &$keys, $context)
    };
    (@read $read:ident, $context:ident, $form:expr, [$key:literal], need($advice:literal)) => {{
        $read.need($key, $advice);
        $form.read($read, &[$key], $context)
    }};

    (@read $read:ident, $context:ident, $form:expr, [$key:literal], need($advice:literal; $fallback:expr)) => {{
        $read.need($key, $advice);
        Some($form.read($read, &[$key], $context).unwrap_or_else(|| $fallback))
    }};

    (@write $of:ty, $value:expr, $form:expr, $keys:tt, $pairs:ident, optional) => {
        if let Some(value) = $value {
            $crate::WriteForm::<$of>::write(&$form, value, &$keys, $pairs);
        }
    };
    (@write $of:ty, $value:expr, $form:expr, $keys:tt, $pairs:ident, $mode:ident) => {
        $crate::WriteForm::<$of>::write(&$form, $value, &$keys, $pairs)
    };
}

/// Declares the keys of a table that is read by hand, as its parts depend on each other or on other
/// tables: a constant `ENTRIES` group and its schema.
#[macro_export]
macro_rules! described {
    (
        $(#[$meta:meta])* $vis:vis $name:ident: $what:literal $($kinded:ident)? $(, and $more:expr)*;
        $( $(#[doc = $meaning:literal])+ $key:literal: $usual:literal; )*
    ) => {
        $(#[$meta])*
        $vis const $name: $crate::schema::Schema = $crate::schema::Schema {
            what: $what,
            keys: &[$($crate::keyed!(@$kinded))?],
            entries: &[
                &[$($crate::schema::Entry {
                    keys: &[$crate::schema::Key { name: $key, meaning: concat!($($meaning),+) }],
                    usual: $crate::schema::Usual::Text(&[$usual]),
                }),*],
                $($more,)*
            ],
        };
    };
}
