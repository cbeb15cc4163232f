//! Names the shared library by the version of its interface, so that a program loads the one that it was compiled for.

use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/abi.rs");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system != "linux") {
        return;
    }
    // The number stands in one place.
    let source = fs::read_to_string("src/abi.rs").unwrap_or_default();
    let version =
        source.lines().find_map(|line| line.strip_prefix("pub const MARCATO_ABI: u32 = ")?.strip_suffix(';'));
    let Some(version) = version else {
        panic!("src/abi.rs does not say `pub const MARCATO_ABI: u32 = …;`")
    };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmarcato.so.{version}");
}
