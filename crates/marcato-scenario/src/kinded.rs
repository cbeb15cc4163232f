//! Enums whose values are kinds of a table.

use std::marker::PhantomData;

use marcato_document::form::Single;
use marcato_document::schema::Schema;
use marcato_document::{Faults, Item, Keyed, Keys, Pairs, Place, Table};

use crate::chosen::{Chosen, Kind, chosen_of};
use crate::plugin::{Plugin, PluginKind};
use crate::read::FORMAT;

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
        read_empty(schema, |keys| read(keys, context))
    }

    /// Returns the value for a kind of another crate.
    fn of_plugin(plugin: Plugin) -> Option<Self>;

    /// Adds the kind's keys, except for `kind`.
    fn write_keys(&self, pairs: &mut Pairs);

    /// Returns the kind as TOML, with its keys if it has any.
    fn toml(&self) -> String;
}

/// Reads a table without keys.
fn read_empty<T>(schema: &'static Schema, read: impl FnOnce(&Keys<'_>) -> Option<T>) -> Option<T> {
    let (table, faults) = (Table::empty(Place::START), Faults::without_text(&FORMAT));
    read(&Keys::open(&table, schema, &faults))
}

/// Returns the defaults of all keys of a table; `None` if a key has none.
pub(crate) fn defaults<T: Keyed<()>>() -> Option<T> {
    read_empty(&T::SCHEMA, |keys| T::read(keys, &()))
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
        $(#[$meta:meta])* $vis:vis enum $name:ident, $of:ty
        $(, fn $method:ident)? $(, plain $plain:literal)? $(, plugins $plugins:ident($plugin:ty))?
        $(, states $is_random:ident)? $(, visited by $visitor:ident)?:
        $(
            $(#[$about:meta])*
            $word:literal => $variant:ident $(($type:ty $(, $what:literal)?))? $(: $($random:ident)+)?
        ),+ $(,)?
    ) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$about])* $variant $(($type))?,)+
            $(
                /// Implementation of another crate.
                Plugin($plugin),
            )?
        }

        $crate::kinded::kinds! {
            $name, $of $(, fn $method)? $(, plain $plain)? $(, plugins $plugins)?:
            $($word => $variant $(($type $(, $what)?))?),+
        }

        $crate::kinded::kinds!(
            @random [$($is_random)?] $name, $($word $variant $(($type))? [$($($random)+)?]),+
        );
        $crate::kinded::kinds!(@visit [$($visitor)?] $name, $($variant $(($type))?),+);
    };
    (
        $name:ident, $of:ty $(, fn $method:ident)? $(, plain $plain:literal)? $(, plugins $plugins:ident)?:
        $($word:literal => $variant:ident $(($type:ty $(, $what:literal)?))?),+ $(,)?
    ) => {
        impl $name {
            $(
                /// Keys of a kind without settings.
                pub(crate) const PLAIN: marcato_document::schema::Schema = marcato_document::schema::Schema::plain($plain);
            )?

            $crate::kinded::kinds!(@method [$($method)?] [$($plugins)?] $($word => $variant $(($type))?),+);
        }

        impl $crate::kinded::Kinded<$of> for $name {
            const KINDS: &'static [$crate::chosen::Kind<$crate::kinded::Read<$of, Self>>] = &[
                $((
                    $word,
                    $crate::kinded::kinds!(@read $name, $variant $(, $type, $of)?),
                    $crate::kinded::kinds!(@schema $name $(, $type, $of $(, $what)?)?),
                )),+
            ];
            const PLUGINS: Option<$crate::plugin::PluginKind> =
                $crate::kinded::kinds!(@plugins $($plugins)?);

            fn of_plugin(plugin: $crate::plugin::Plugin) -> Option<Self> {
                $crate::kinded::kinds!(@of_plugin plugin $($plugins)?)
            }

            fn write_keys(&self, pairs: &mut marcato_document::Pairs) {
                match self {
                    $($crate::kinded::kinds!(@bind $variant, table $(, $type)?) => {
                        $crate::kinded::kinds!(@write pairs, table $(, $type, $of)?);
                    })+
                    $(Self::Plugin(_) => $crate::kinded::kinds!(@nothing $plugins),)?
                }
            }

            fn toml(&self) -> String {
                match self {
                    $($crate::kinded::kinds!(@any $variant $(, $type)?) => {
                        $crate::kinded::kinds!(@toml self, $word $(, $type, $of)?)
                    })+
                    $(Self::Plugin(plugin) => $crate::kinded::kinds!(@plugin_toml plugin $plugins),)?
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
                    $($crate::kinded::kinds!(@any $variant $(, $type)?) => {
                        $crate::kinded::kinds!(@states $word $($random)*)
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
    (@method [] [$($plugins:ident)?] $($rest:tt)*) => {};
    (@method [$method:ident] [] $($word:literal => $variant:ident $(($type:ty))?),+) => {
        /// Returns the name used in a file.
        pub const fn $method(&self) -> &'static str {
            match self { $($crate::kinded::kinds!(@any $variant $(, $type)?) => $word),+ }
        }
    };
    (@method [$method:ident] [$plugins:ident] $($word:literal => $variant:ident $(($type:ty))?),+) => {
        /// Returns the name used in a file.
        pub fn $method(&self) -> &str {
            match self {
                $($crate::kinded::kinds!(@any $variant $(, $type)?) => $word,)+
                Self::Plugin(plugin) => &plugin.name,
            }
        }
    };
    (@read $name:ident, $variant:ident) => { |_, _| Some($name::$variant) };
    (@read $name:ident, $variant:ident, $type:ty, $of:ty) => {
        |keys, context| <$type as marcato_document::Keyed<$of>>::read(keys, context).map($name::$variant)
    };
    (@schema $name:ident) => { &$name::PLAIN };
    (@schema $name:ident, $type:ty, $of:ty) => { &<$type as marcato_document::Keyed<$of>>::SCHEMA };
    (@schema $name:ident, $type:ty, $of:ty, $what:literal) => {
        &marcato_document::schema::Schema { what: $what, ..<$type as marcato_document::Keyed<$of>>::SCHEMA }
    };
    (@any $variant:ident) => { Self::$variant };
    (@any $variant:ident, $type:ty) => { Self::$variant(_) };
    (@bind $variant:ident, $table:ident) => { Self::$variant };
    (@bind $variant:ident, $table:ident, $type:ty) => { Self::$variant($table) };
    (@write $pairs:ident, $table:ident) => { let _ = $pairs; };
    (@write $pairs:ident, $table:ident, $type:ty, $of:ty) => {
        <$type as marcato_document::WriteKeyed<$of>>::write($table, $pairs);
    };
    (@toml $self:ident, $word:literal) => { marcato_document::quote($word) };
    (@toml $self:ident, $word:literal, $type:ty, $of:ty) => {{
        let mut pairs = marcato_document::Pairs::new();
        pairs.text("kind", $word);
        $crate::kinded::Kinded::<$of>::write_keys($self, &mut pairs);
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

/// Table with a `kind`, or the kind alone.
pub(crate) struct KindOf<T>(PhantomData<T>);

/// Returns the form of a kind of `T`.
pub(crate) const fn kind_of<T>() -> KindOf<T> {
    KindOf(PhantomData)
}

impl<C: 'static, T: Kinded<C>> Single<C> for KindOf<T> {
    type Value = T;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, context: &C) -> Option<T> {
        read_kind(key, keys.item(key)?, keys.faults, context)
    }

    fn toml(&self, value: &T) -> String {
        value.toml()
    }
}

/// Reads a table with a `kind`, or the kind alone.
pub(crate) fn read_kind<C: 'static, T: Kinded<C>>(
    key: &str,
    item: &Item,
    faults: &Faults,
    context: &C,
) -> Option<T> {
    match chosen_of(key, item, T::KINDS, T::PLUGINS, faults)? {
        Chosen::BuiltIn(read, tagged) => read(&tagged.keys(), context),
        Chosen::Plugin(plugin) => T::of_plugin(plugin),
    }
}

pub(crate) use kinds;
