//! Tests that the header says what the code does.

use std::path::Path;

/// Writes the header from the code, or compares: a change of the interface is seen, and is announced by `MARCATO_ABI`.
#[test]
fn the_header_is_that_of_the_code() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(directory.join("cbindgen.toml")).unwrap();
    let source = directory.join("src/abi.rs");
    let bindings = cbindgen::Builder::new().with_config(config).with_src(source).generate().unwrap();
    let mut written = Vec::new();
    bindings.write(&mut written);
    let written = String::from_utf8(written).unwrap();

    let header = directory.join("include/marcato.h");
    if std::env::var_os("MARCATO_HEADER").is_some_and(|asked| asked == "write") {
        std::fs::write(&header, &written).unwrap();
    }
    let kept = std::fs::read_to_string(&header).unwrap();
    assert!(
        kept == written,
        "include/marcato.h is not what src/abi.rs says. If the change is meant: raise MARCATO_ABI if programs that \
         were compiled before do not work any more, then run `MARCATO_HEADER=write cargo test -p marcato-ffi header`"
    );
}
