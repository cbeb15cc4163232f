//! Forms of values in files: how each is read and written.

use std::iter;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Time, Word, Worded};

use crate::document::quote;
use crate::keyed::{Form, WriteForm, WriteKeyed};
use crate::keys::Keys;
use crate::pairs::{Pairs, array};
use crate::quantity;

/// Form of a value under one key.
pub trait Single<C> {
    /// Value in memory.
    type Value;

    /// Reads the value; `None` if it is missing, or after a fault.
    fn read_one(&self, keys: &Keys<'_>, key: &'static str, context: &C) -> Option<Self::Value>;

    /// Returns the value as TOML.
    fn toml(&self, value: &Self::Value) -> String;
}

impl<C, S: Single<C>> Form<C> for S {
    type Value = S::Value;

    fn read(&self, keys: &Keys<'_>, names: &[&'static str], context: &C) -> Option<Self::Value> {
        self.read_one(keys, names.first()?, context)
    }
}

impl<C, S: Single<C>> WriteForm<C> for S {
    fn write(&self, value: &Self::Value, names: &[&'static str], pairs: &mut Pairs) {
        if let Some(&name) = names.first() {
            pairs.raw(name, self.toml(value));
        }
    }
}

/// Declares forms without parameters that every table may use.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident: $value:ty, |$keys:ident, $key:ident| $read:expr, |$it:ident| $toml:expr;)+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl<C> Single<C> for $name {
                type Value = $value;

                fn read_one(&self, $keys: &Keys<'_>, $key: &'static str, _: &C) -> Option<$value> {
                    $read
                }

                fn toml(&self, $it: &$value) -> String {
                    $toml
                }
            }
        )+
    };
}

plain! {
    /// Span of time.
    Span: Duration, |keys, key| keys.span(key), |span| quote(&quantity::span(*span));
    /// Span of time above 0.
    SomeSpan: Duration, |keys, key| keys.some_span(key), |span| quote(&quantity::span(*span));
    /// Instant of virtual time, as the span since the start.
    Instant: Time, |keys, key| keys.span(key).map(|span| Time::ZERO + span),
        |time| quote(&quantity::span(time.since(Time::ZERO)));
    /// Size.
    Size: Bytes, |keys, key| keys.size(key), |size| quote(&quantity::size(*size));
    /// Size above 0.
    SomeSize: Bytes, |keys, key| keys.some_size(key), |size| quote(&quantity::size(*size));
    /// Rate above 0.
    SomeRate: Rate, |keys, key| keys.some_rate(key), |rate| quote(&quantity::rate(*rate));
    /// True or false.
    Flag: bool, |keys, key| keys.boolean(key), |flag| flag.to_string();
    /// Priority.
    Urgency: Priority, |keys, key| keys.priority(key), |priority| quote(&priority_text(*priority));
    /// Layer of the network.
    Class: Layer, |keys, key| keys.layer(key), |layer| quote(layer.name());
    /// Probability.
    Probability: f64, |keys, key| keys.probability(key), |number| format!("{number:?}");
    /// Text of at least one character.
    SomeText: String, |keys, key| keys.some_string(key).map(str::to_owned), |text| quote(text);
    /// Text.
    Text: String, |keys, key| keys.string(key).map(str::to_owned), |text| quote(text);
}

/// Formats a priority as in files.
pub fn priority_text(priority: Priority) -> String {
    format!("p{}", priority.index())
}

/// Span of time within a range.
#[derive(Clone, Debug)]
pub struct SpanWithin(pub RangeInclusive<Duration>);

impl<C> Single<C> for SpanWithin {
    type Value = Duration;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &C) -> Option<Duration> {
        keys.span_within(key, &self.0)
    }

    fn toml(&self, span: &Duration) -> String {
        quote(&quantity::span(*span))
    }
}

/// Size within a range.
#[derive(Clone, Debug)]
pub struct SizeWithin(pub RangeInclusive<Bytes>);

impl<C> Single<C> for SizeWithin {
    type Value = Bytes;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &C) -> Option<Bytes> {
        keys.size_within(key, &self.0)
    }

    fn toml(&self, size: &Bytes) -> String {
        quote(&quantity::size(*size))
    }
}

/// Number of things in memory, within a range.
#[derive(Clone, Debug)]
pub struct Count(pub RangeInclusive<usize>);

impl<C> Single<C> for Count {
    type Value = usize;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &C) -> Option<usize> {
        let range = *self.0.start() as u64..=*self.0.end() as u64;
        keys.integer(key, range).and_then(|number| usize::try_from(number).ok())
    }

    fn toml(&self, value: &usize) -> String {
        value.to_string()
    }
}

/// Whole number of 32 bits within a range.
#[derive(Clone, Debug)]
pub struct Small(pub RangeInclusive<u32>);

impl<C> Single<C> for Small {
    type Value = u32;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &C) -> Option<u32> {
        keys.small(key, self.0.clone())
    }

    fn toml(&self, value: &u32) -> String {
        value.to_string()
    }
}

/// Whole number of 64 bits within a range.
#[derive(Clone, Debug)]
pub struct Whole(pub RangeInclusive<u64>);

impl<C> Single<C> for Whole {
    type Value = u64;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &C) -> Option<u64> {
        keys.integer(key, self.0.clone())
    }

    fn toml(&self, value: &u64) -> String {
        value.to_string()
    }
}

/// Number within a range.
#[derive(Clone, Debug)]
pub struct Number(pub RangeInclusive<f64>);

impl<C> Single<C> for Number {
    type Value = f64;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &C) -> Option<f64> {
        keys.number(key, self.0.clone())
    }

    fn toml(&self, value: &f64) -> String {
        // Debug output is the shortest text that reads back as the same float.
        format!("{value:?}")
    }
}

/// Number from the least to the greatest, kept as a whole number of this part of 1, for example
/// thousandths.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Number of parts of 1.
    pub of_one: u32,
    /// Least and greatest number.
    pub range: RangeInclusive<f64>,
}

impl<C> Single<C> for Parts {
    type Value = u32;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "ranges are at most 10 and not negative, and parts at least millionths"
    )]
    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &C) -> Option<u32> {
        let number = keys.number(key, self.range.clone())?;
        Some((number * f64::from(self.of_one)).round() as u32)
    }

    fn toml(&self, value: &u32) -> String {
        format!("{:?}", f64::from(*value) / f64::from(self.of_one))
    }
}

/// Word of a closed list.
#[derive(Clone, Copy, Debug)]
pub struct OneOf<T>(PhantomData<T>);

/// Returns the form of a word of `T`'s list.
pub const fn one_of<T: Worded>() -> OneOf<T> {
    OneOf(PhantomData)
}

impl<C, T: Worded> Single<C> for OneOf<T> {
    type Value = T;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, context: &C) -> Option<T> {
        Words(T::WORDS).read_one(keys, key, context)
    }

    fn toml(&self, value: &T) -> String {
        Single::<C>::toml(&Words(T::WORDS), value)
    }
}

/// Word of a list that stands elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Words<T: 'static>(pub &'static [Word<T>]);

impl<C, T: Copy + PartialEq> Single<C> for Words<T> {
    type Value = T;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &C) -> Option<T> {
        keys.word(key, self.0)
    }

    fn toml(&self, value: &T) -> String {
        quote(self.0.iter().find(|(_, one)| one == value).map_or("", |(word, _)| *word))
    }
}

/// Word of a closed list, or one for its absence.
#[derive(Clone, Copy, Debug)]
pub struct OneOfOr<T>(&'static str, PhantomData<T>);

/// Returns the form of a word of `T`'s list, or of `absent`.
pub const fn one_of_or<T: Worded>(absent: &'static str) -> OneOfOr<T> {
    OneOfOr(absent, PhantomData)
}

impl<C, T: Worded> Single<C> for OneOfOr<T> {
    type Value = Option<T>;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &C) -> Option<Option<T>> {
        let some = T::WORDS.iter().map(|(word, value)| (*word, Some(*value)));
        keys.word(key, &iter::once((self.0, None)).chain(some).collect::<Vec<_>>())
    }

    fn toml(&self, value: &Option<T>) -> String {
        value.as_ref().map_or_else(|| quote(self.0), |value| Single::<C>::toml(&one_of::<T>(), value))
    }
}

/// Value of another form, or a word for its absence.
#[derive(Clone, Copy, Debug)]
pub struct Or<S>(pub &'static str, pub S);

impl<C, S: Single<C>> Single<C> for Or<S> {
    type Value = Option<S::Value>;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, context: &C) -> Option<Option<S::Value>> {
        let is_word = keys.item(key)?.as_str() == Some(self.0);
        if is_word { Some(None) } else { self.1.read_one(keys, key, context).map(Some) }
    }

    fn toml(&self, value: &Option<S::Value>) -> String {
        value.as_ref().map_or_else(|| quote(self.0), |value| self.1.toml(value))
    }
}

/// Value with a function that checks it, which adds a fault if it is wrong.
#[derive(Clone, Copy, Debug)]
pub struct Checked<S, F>(pub S, pub F);

impl<C, S: Single<C>, F: Fn(&Keys<'_>, &'static str, &S::Value)> Single<C> for Checked<S, F> {
    type Value = S::Value;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, context: &C) -> Option<S::Value> {
        let value = self.0.read_one(keys, key, context)?;
        (self.1)(keys, key, &value);
        Some(value)
    }

    fn toml(&self, value: &S::Value) -> String {
        self.0.toml(value)
    }
}

/// Table without a `kind`.
#[derive(Clone, Copy, Debug)]
pub struct TableOf<T>(PhantomData<T>);

/// Returns the form of a table that is read as `T`.
pub const fn table_of<T>() -> TableOf<T> {
    TableOf(PhantomData)
}

impl<C, T: WriteKeyed<C>> Single<C> for TableOf<T> {
    type Value = T;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, context: &C) -> Option<T> {
        let table = keys.table(key)?;
        T::read(&Keys::open(table, &T::SCHEMA, keys.faults), context)
    }

    fn toml(&self, value: &T) -> String {
        let mut pairs = Pairs::new();
        value.write(&mut pairs);
        pairs.inline()
    }
}

/// List of tables, of at most so many.
#[derive(Clone, Copy, Debug)]
pub struct Tables<T>(pub usize, PhantomData<T>);

/// Returns the form of a list of at most `most` tables that are each read as `T`.
pub const fn tables<T>(most: usize) -> Tables<T> {
    Tables(most, PhantomData)
}

impl<C, T: WriteKeyed<C>> Single<C> for Tables<T> {
    type Value = Vec<T>;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, context: &C) -> Option<Vec<T>> {
        keys.item(key)?;
        let read = |table| T::read(&Keys::open(table, &T::SCHEMA, keys.faults), context);
        Some(keys.tables(key, self.0).filter_map(read).collect())
    }

    fn toml(&self, values: &Vec<T>) -> String {
        array(values.iter().map(|value| TableOf(PhantomData).toml(value)))
    }
}

/// Form that needs no context, in a table that has one.
#[derive(Clone, Copy, Debug)]
pub struct Context<S>(pub S);

impl<C, S: Single<()>> Single<C> for Context<S> {
    type Value = S::Value;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &C) -> Option<S::Value> {
        self.0.read_one(keys, key, &())
    }

    fn toml(&self, value: &S::Value) -> String {
        self.0.toml(value)
    }
}

/// Keys that something else reads and writes, as they depend on more than their table.
#[derive(Clone, Copy, Debug)]
pub struct Elsewhere;

impl Form<()> for Elsewhere {
    type Value = ();

    fn read(&self, _: &Keys<'_>, _: &[&'static str], (): &()) -> Option<()> {
        Some(())
    }
}

impl WriteForm<()> for Elsewhere {
    fn write(&self, _: &(), _: &[&'static str], _: &mut Pairs) {}
}
