//! Tables whose keys are declared once.
//!
//! A declaration with [`keyed!`] names each key with its meaning, the field that it sets, the form
//! of its value and its default. The reader, the writer and the schema follow from it; the tables
//! of `docs/scenarios.md` follow from the schema.

use marcato_document::{Place, Table};

use crate::fault::Faults;
use crate::keys::{Keys, Kind, Word};
use crate::pairs::Pairs;
use crate::plugin::{Plugin, PluginKind};
use crate::schema::{Entry, Schema};

/// Value of a table. `C` is what the reader needs to know beside the table, such as the rate of the
/// link that a queue belongs to.
pub(crate) trait Keyed<C = ()>: Sized {
    /// Keys of the table, except for `kind`.
    const ENTRIES: &'static [&'static [Entry]];
    /// Keys of the table.
    const SCHEMA: Schema;

    /// Reads the table. Returns `None` after a fault that leaves no value.
    fn read(keys: &Keys<'_>, context: &C) -> Option<Self>;

    /// Adds all keys with their values.
    fn write(&self, pairs: &mut Pairs);
}

impl<C, T: Keyed<C>> Keyed<C> for Box<T> {
    const ENTRIES: &'static [&'static [Entry]] = T::ENTRIES;
    const SCHEMA: Schema = T::SCHEMA;

    fn read(keys: &Keys<'_>, context: &C) -> Option<Self> {
        T::read(keys, context).map(Self::new)
    }

    fn write(&self, pairs: &mut Pairs) {
        (**self).write(pairs);
    }
}

/// Form of a value in a file, under one key or several.
pub(crate) trait Form<C> {
    /// Value in memory.
    type Value;

    /// Reads the value; `None` if it is missing, or after a fault.
    fn read(&self, keys: &Keys<'_>, names: &[&'static str], context: &C) -> Option<Self::Value>;

    /// Adds the value.
    fn write(&self, value: &Self::Value, names: &[&'static str], pairs: &mut Pairs);
}

/// Closed list of values, each with a word in files.
pub(crate) trait Worded: Copy + PartialEq + 'static {
    /// All words.
    const WORDS: &'static [Word<Self>];
}

/// Returns the written form of a default.
pub(crate) fn written<C, F: Form<C>>(form: &F, value: &F::Value, name: &'static str) -> String {
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
/// `kinded` tables have a `kind`. `flatten` includes the keys of a field's own table, `beside` those
/// of another table that shares this one.
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
        impl $crate::keyed::Keyed<$of> for $type {
            const ENTRIES: &'static [&'static [$crate::schema::Entry]] = &[
                $(<$beside as $crate::keyed::Keyed<$beside_of>>::ENTRIES[0],)?
                $(<$inner_type as $crate::keyed::Keyed<$inner_of>>::ENTRIES[0],)*
                &[$($crate::schema::Entry {
                    keys: &[$($crate::schema::Key { name: $key, meaning: concat!($($meaning),+) }),+],
                    usual: $crate::keyed::keyed!(@usual $of, $form, [$($key),+], $mode($($arg)*)),
                }),*],
            ];
            const SCHEMA: $crate::schema::Schema = $crate::schema::Schema {
                what: $what,
                keys: &[$($crate::keyed::keyed!(@$kinded))?],
                entries: <Self as $crate::keyed::Keyed<$of>>::ENTRIES,
            };

            fn read(keys: &$crate::keys::Keys<'_>, $context: &$of) -> Option<Self> {
                #[allow(unused_imports, reason = "a table may have no form of its own")]
                use $crate::keyed::Form as _;
                $(let $inner = <$inner_type as $crate::keyed::Keyed<$inner_of>>::read(keys, &$inner_context);)*
                $(let $field = $crate::keyed::keyed!(@read keys, $context, $form, [$($key),+], $mode($($arg)*));)*
                #[allow(clippy::needless_update, reason = "some types have more fields than keys")]
                let read = Self { $($inner: $inner?,)* $($field: $field?,)* $(..$base)? };
                $(
                    let mut read = read;
                    ($check)(&mut read, keys, $context);
                )?
                Some(read)
            }

            fn write(&self, pairs: &mut $crate::pairs::Pairs) {
                $(<$inner_type as $crate::keyed::Keyed<$inner_of>>::write(&self.$inner, pairs);)*
                $($crate::keyed::keyed!(@write $of, &self.$field, $form, [$($key),+], pairs, $mode);)*
            }
        }
    };
    (@kinded) => { &["kind"] };

    (@usual $of:ty, $form:expr, [$key:literal], or($default:expr)) => {
        $crate::schema::Usual::Value(|| $crate::keyed::written::<$of, _>(&$form, &$default, $key))
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
            $crate::keyed::Form::<$of>::write(&$form, value, &$keys, $pairs);
        }
    };
    (@write $of:ty, $value:expr, $form:expr, $keys:tt, $pairs:ident, $mode:ident) => {
        $crate::keyed::Form::<$of>::write(&$form, $value, &$keys, $pairs)
    };
}

/// Declares an enum without fields together with the words for its values.
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$attribute:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $($(#[$attribute])* $variant),+ }

        impl $name {
            /// Returns the name used in a file.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl $crate::keyed::Worded for $name {
            const WORDS: &'static [$crate::keys::Word<Self>] = &[$(($word, Self::$variant)),+];
        }
    };
}

/// Reader of the table of a kind.
pub(crate) type Read<C, T> = fn(&Keys<'_>, &C) -> Option<T>;

/// Enum whose values are kinds of a table: its name alone, or a table with a `kind`.
pub(crate) trait Kinded<C: 'static>: Sized + 'static {
    /// Built-in kinds, each with the reader of its keys.
    const KINDS: &'static [Kind<Read<C, Self>>];
    /// Kinds of other crates, if there can be any.
    const PLUGINS: Option<PluginKind>;

    /// Returns the built-in kind of this name with the defaults of all keys.
    fn usual(kind: &str, context: &C) -> Option<Self> {
        let (_, read, schema) = Self::KINDS.iter().find(|(name, ..)| *name == kind)?;
        let (table, faults) = (Table::empty(Place::START), Faults::default());
        read(&Keys::open(&table, schema, &faults), context)
    }

    /// Returns the value for a kind of another crate.
    fn of_plugin(plugin: Plugin) -> Option<Self>;

    /// Adds the kind's keys, except for `kind`.
    fn write_keys(&self, pairs: &mut Pairs);

    /// Returns the kind as TOML, with its keys if it has any.
    fn toml(&self) -> String;
}

/// Declares the kinds of an enum: the name of each, its variant, and the type of its table, which a
/// kind without keys does not have.
///
/// With `enum`, it declares the enum as well: a row then is all that a new kind needs here. Its
/// first lines are the documentation of the variant. `plugins Kind(Type)` adds a variant for the
/// kinds of other crates. With `states is_random`, every row states `: random` or `: not random`, which
/// is whether the kind draws random numbers. With `visited by Trait`, a method `visit` calls a
/// visitor of that trait with the table of the kind, or with the plug-in.
macro_rules! kinds {
    (
        $(#[$meta:meta])* $vis:vis enum $name:ident $(<$own:ident = $usual:ty>)?, $of:ty
        $(, fn $method:ident)? $(, plain $plain:literal)? $(, plugins $plugins:ident($plugin:ty))?
        $(, states $is_random:ident)? $(, visited by $visitor:ident)?:
        $(
            $(#[$about:meta])*
            $word:literal => $variant:ident $(($type:ty $(, $what:literal)?))? $(: $($random:ident)+)?
        ),+ $(,)?
    ) => {
        $(#[$meta])*
        $vis enum $name $(<$own = $usual>)? {
            $($(#[$about])* $variant $(($type))?,)+
            $(
                /// Implementation of another crate.
                Plugin($plugin),
            )?
        }

        $crate::keyed::kinds! {
            $name, $of $(, fn $method)? $(, plain $plain)? $(, plugins $plugins)?:
            $($word => $variant $(($type $(, $what)?))?),+
        }

        $crate::keyed::kinds!(
            @random [$($is_random)?] $name, $($word $variant $(($type))? [$($($random)+)?]),+
        );
        $crate::keyed::kinds!(@visit [$($visitor)?] $name, $($variant $(($type))?),+);
        $crate::keyed::kinds!(@built_in [$($own)?] $name, $($variant $(($type))?),+);
    };
    (
        $name:ident, $of:ty $(, fn $method:ident)? $(, plain $plain:literal)? $(, plugins $plugins:ident)?:
        $($word:literal => $variant:ident $(($type:ty $(, $what:literal)?))?),+ $(,)?
    ) => {
        impl $name {
            $(
                /// Keys of a kind without settings.
                pub(crate) const PLAIN: $crate::schema::Schema = $crate::schema::Schema::plain($plain);
            )?

            $crate::keyed::kinds!(@method [$($method)?] [$($plugins)?] $($word => $variant $(($type))?),+);
        }

        impl $crate::keyed::Kinded<$of> for $name {
            const KINDS: &'static [$crate::keys::Kind<$crate::keyed::Read<$of, Self>>] = &[
                $((
                    $word,
                    $crate::keyed::kinds!(@read $name, $variant $(, $type, $of)?),
                    $crate::keyed::kinds!(@schema $name $(, $type, $of $(, $what)?)?),
                )),+
            ];
            const PLUGINS: Option<$crate::plugin::PluginKind> =
                $crate::keyed::kinds!(@plugins $($plugins)?);

            fn of_plugin(plugin: $crate::plugin::Plugin) -> Option<Self> {
                $crate::keyed::kinds!(@of_plugin plugin $($plugins)?)
            }

            fn write_keys(&self, pairs: &mut $crate::pairs::Pairs) {
                match self {
                    $($crate::keyed::kinds!(@bind $variant, table $(, $type)?) => {
                        $crate::keyed::kinds!(@write pairs, table $(, $type, $of)?);
                    })+
                    $(Self::Plugin(_) => $crate::keyed::kinds!(@nothing $plugins),)?
                }
            }

            fn toml(&self) -> String {
                match self {
                    $($crate::keyed::kinds!(@any $variant $(, $type)?) => {
                        $crate::keyed::kinds!(@toml self, $word $(, $type, $of)?)
                    })+
                    $(Self::Plugin(plugin) => $crate::keyed::kinds!(@plugin_toml plugin $plugins),)?
                }
            }
        }
    };
    (@random [] $($rest:tt)*) => {};
    (@random [is_random] $name:ident, $($word:literal $variant:ident $(($type:ty))? [$($random:ident)*]),+) => {
        impl $name {
            /// Returns whether it draws random numbers. A plug-in has a random stream, and may.
            pub const fn is_random(&self) -> bool {
                match self {
                    $($crate::keyed::kinds!(@any $variant $(, $type)?) => {
                        $crate::keyed::kinds!(@states $word $($random)*)
                    })+
                    Self::Plugin(_) => true,
                }
            }
        }
    };
    (@states $word:literal random) => { true };
    (@states $word:literal not random) => { false };
    (@states $word:literal $($other:ident)*) => {
        compile_error!(concat!("state `: random` or `: not random` in the row of `", $word, "`"))
    };
    (@visit [] $($rest:tt)*) => {};
    (@visit [$visitor:ident] $name:ident, $($variant:ident ($type:ty)),+) => {
        impl $name {
            /// Calls the visitor with the table of the kind, or with the plug-in.
            fn visit<V: $visitor>(&self, visitor: V) -> V::Output {
                match self {
                    $(Self::$variant(table) => visitor.table::<$type>(table),)+
                    Self::Plugin(plugin) => visitor.plugin(plugin),
                }
            }
        }
    };
    (@built_in [] $($rest:tt)*) => {};
    (@built_in [$own:ident] $name:ident, $($variant:ident $(($type:ty))?),+) => {
        impl<$own> $name<$own> {
            /// Returns the built-in kind.
            ///
            /// # Errors
            /// Returns the plug-in, if it is one.
            pub fn built_in(self) -> Result<$name<core::convert::Infallible>, $own> {
                match self {
                    $($crate::keyed::kinds!(@bind $variant, table $(, $type)?) => {
                        Ok($crate::keyed::kinds!(@make $name, $variant, table $(, $type)?))
                    })+
                    Self::Plugin(plugin) => Err(plugin),
                }
            }
        }
    };
    (@make $name:ident, $variant:ident, $table:ident) => { $name::$variant };
    (@make $name:ident, $variant:ident, $table:ident, $type:ty) => { $name::$variant($table) };
    (@method [] [$($plugins:ident)?] $($rest:tt)*) => {};
    (@method [$method:ident] [] $($word:literal => $variant:ident $(($type:ty))?),+) => {
        /// Returns the name used in a file.
        pub const fn $method(&self) -> &'static str {
            match self { $($crate::keyed::kinds!(@any $variant $(, $type)?) => $word),+ }
        }
    };
    (@method [$method:ident] [$plugins:ident] $($word:literal => $variant:ident $(($type:ty))?),+) => {
        /// Returns the name used in a file.
        pub fn $method(&self) -> &str {
            match self {
                $($crate::keyed::kinds!(@any $variant $(, $type)?) => $word,)+
                Self::Plugin(plugin) => &plugin.name,
            }
        }
    };
    (@read $name:ident, $variant:ident) => { |_, _| Some($name::$variant) };
    (@read $name:ident, $variant:ident, $type:ty, $of:ty) => {
        |keys, context| <$type as $crate::keyed::Keyed<$of>>::read(keys, context).map($name::$variant)
    };
    (@schema $name:ident) => { &$name::PLAIN };
    (@schema $name:ident, $type:ty, $of:ty) => { &<$type as $crate::keyed::Keyed<$of>>::SCHEMA };
    (@schema $name:ident, $type:ty, $of:ty, $what:literal) => {
        &$crate::schema::Schema { what: $what, ..<$type as $crate::keyed::Keyed<$of>>::SCHEMA }
    };
    (@any $variant:ident) => { Self::$variant };
    (@any $variant:ident, $type:ty) => { Self::$variant(_) };
    (@bind $variant:ident, $table:ident) => { Self::$variant };
    (@bind $variant:ident, $table:ident, $type:ty) => { Self::$variant($table) };
    (@write $pairs:ident, $table:ident) => { let _ = $pairs; };
    (@write $pairs:ident, $table:ident, $type:ty, $of:ty) => {
        <$type as $crate::keyed::Keyed<$of>>::write($table, $pairs);
    };
    (@toml $self:ident, $word:literal) => { marcato_document::quote($word) };
    (@toml $self:ident, $word:literal, $type:ty, $of:ty) => {{
        let mut pairs = $crate::pairs::Pairs::new();
        pairs.text("kind", $word);
        $crate::keyed::Kinded::<$of>::write_keys($self, &mut pairs);
        pairs.inline()
    }};
    (@nothing $plugins:ident) => { {} };
    (@plugins) => { None };
    (@plugins $plugins:ident) => { Some($crate::plugin::PluginKind::$plugins) };
    (@of_plugin $plugin:ident) => {{
        let _ = $plugin;
        None
    }};
    (@of_plugin $plugin:ident $plugins:ident) => { Some(Self::Plugin($plugin)) };
    (@plugin_toml $plugin:ident $plugins:ident) => { $plugin.toml() };
}

/// Declares the keys of a table that is read by hand, as its parts depend on each other or on other
/// tables: a constant `ENTRIES` group and its schema.
macro_rules! described {
    (
        $(#[$meta:meta])* $vis:vis $name:ident: $what:literal $($kinded:ident)? $(, and $more:expr)*;
        $( $(#[doc = $meaning:literal])+ $key:literal: $usual:literal; )*
    ) => {
        $(#[$meta])*
        $vis const $name: $crate::schema::Schema = $crate::schema::Schema {
            what: $what,
            keys: &[$($crate::keyed::keyed!(@$kinded))?],
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

pub(crate) use {described, keyed, kinds, words};
