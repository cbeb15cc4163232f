//! Records the commit that the crate is built from. Never fails: a build without git gets
//! "unknown".
//!
//! An unoptimised build names no commit: with each, this crate and all above it would be compiled anew. Its results are
//! for tests.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=MARCATO_COMMIT");
    let commit = std::env::var("MARCATO_COMMIT")
        .ok()
        .filter(|name| !name.is_empty())
        .or_else(|| if is_debug() { Some("debug".to_owned()) } else { from_git() })
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=MARCATO_COMMIT={commit}");
}

/// Returns whether the profile is `dev`, or inherits it.
fn is_debug() -> bool {
    std::env::var("PROFILE").is_ok_and(|profile| profile == "debug")
}

fn from_git() -> Option<String> {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    // If the source is unpacked inside another repository, that repository's commit would be wrong.
    let top = git(&manifest, &["rev-parse", "--show-toplevel"])?;
    let workspace = manifest.parent()?.parent()?.canonicalize().ok()?;
    if Path::new(&top).canonicalize().ok()? != workspace {
        return None;
    }
    // The log of HEAD grows with every commit and checkout; HEAD itself only changes with the
    // branch.
    for file in ["HEAD", "logs/HEAD"] {
        let path = manifest.join(git(&manifest, &["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&manifest, &["rev-parse", "--short=12", "HEAD"])
}

fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(directory).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
