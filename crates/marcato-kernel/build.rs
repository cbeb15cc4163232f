//! Compiles the eBPF programs with clang. Without clang, or without libbpf's headers, the crate is
//! built all the same, and says so where the programs are loaded.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=MARCATO_CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("crq.bpf.o");
    if let Err(why) = compile(&out) {
        println!("cargo::warning=the eBPF programs of CRQ are not built: {why}");
        // An empty object stands for none.
        fs::write(&out, []).expect("OUT_DIR can be written");
    }
}

fn compile(out: &Path) -> Result<(), String> {
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return Err("the target is not Linux".to_owned());
    }
    let clang = env::var("MARCATO_CLANG").unwrap_or_else(|_| "clang".to_owned());
    // Where Debian and its descendants keep <asm/types.h>.
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let include = format!("-I/usr/include/{machine}-linux-gnu");
    let said = Command::new(&clang)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Wno-unused-parameter"])
        .args([&include, "-c", "bpf/crq.bpf.c", "-o"])
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
    Ok(())
}
