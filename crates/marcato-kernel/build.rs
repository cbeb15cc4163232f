//! Compiles the eBPF programs with clang, or takes the object that was compiled elsewhere.
//!
//! In this order: the object that `MARCATO_BPF_OBJECT` (CRQ) or `MARCATO_BPF_MARKS_OBJECT` (marks of sockets) names;
//! clang; the object that is shipped beside the sources (`make bpf`). Without any, the crate is built all the same, and says so where the programs
//! are loaded. An object of other sources than these is refused.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Objects, each with the variable that names one that was compiled elsewhere.
const OBJECTS: [(&str, &str); 2] =
    [("crq.bpf", "MARCATO_BPF_OBJECT"), ("marks.bpf", "MARCATO_BPF_MARKS_OBJECT")];
/// Text before the digest of the sources, in the object.
const STAMP: &str = "marcato-crq-sources:";

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=MARCATO_CLANG");
    let stamp = format!("{STAMP}{:016x}", digest());
    for (name, variable) in OBJECTS {
        println!("cargo::rerun-if-env-changed={variable}");
        build(name, variable, &stamp);
    }
}

/// Compiles or takes one object.
fn build(name: &str, variable: &str, stamp: &str) {
    let file = format!("{name}.o");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(&file);
    let object = if let Some(named) = env::var_os(variable) {
        take(Path::new(&named), stamp).unwrap_or_else(|why| panic!("{variable}: {why}"))
    } else {
        let compiled = compile(name, &out, stamp);
        let shipped = Path::new("bpf").join(&file);
        compiled.or_else(|why| take(&shipped, stamp).map_err(|_| why)).unwrap_or_else(|why| {
            println!("cargo::warning=the eBPF programs of {file} are not built: {why}");
            // An empty object stands for none.
            Vec::new()
        })
    };
    fs::write(&out, object).expect("OUT_DIR can be written");
}

/// Digest of all sources: FNV-1a, which is enough to notice a mistake.
fn digest() -> u64 {
    let entries = fs::read_dir("bpf").expect("bpf/ is there").flatten().map(|entry| entry.path());
    let is_source = |path: &PathBuf| path.extension().is_some_and(|end| end == "h" || end == "c");
    let mut sources: Vec<PathBuf> = entries.filter(is_source).collect();
    sources.sort();
    let bytes = sources.iter().flat_map(|path| fs::read(path).expect("sources can be read"));
    bytes
        .fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Reads an object, if it was compiled from these sources.
fn take(path: &Path, stamp: &str) -> Result<Vec<u8>, String> {
    let object = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if object.windows(stamp.len()).any(|part| part == stamp.as_bytes()) {
        return Ok(object);
    }
    Err(format!("{}: it was compiled from other sources than these: `make bpf` writes one", path.display()))
}

fn compile(name: &str, out: &Path, stamp: &str) -> Result<Vec<u8>, String> {
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return Err("the target is not Linux".to_owned());
    }
    let clang = env::var("MARCATO_CLANG").unwrap_or_else(|_| "clang".to_owned());
    // Where Debian and its descendants keep <asm/types.h>.
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let include = format!("-I/usr/include/{machine}-linux-gnu");
    let said = Command::new(&clang)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Wno-unused-parameter"])
        .args([&include, &format!("-DSOURCES=\"{stamp}\""), "-c", &format!("bpf/{name}.c"), "-o"])
        .arg(out)
        .output()
        .map_err(|error| format!("`{clang}` cannot be run ({error}): install clang and libbpf-dev"))?;
    let text = String::from_utf8_lossy(&said.stderr);
    if !said.status.success() {
        return Err(format!("install clang and libbpf-dev; `{clang}` says: {}", text.replace('\n', " ")));
    }
    for line in text.lines().filter(|line| !line.is_empty()) {
        println!("cargo::warning={line}");
    }
    take(out, stamp)
}
