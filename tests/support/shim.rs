//! Builds the libraries that tests preload into processes.

use std::path::Path;
use std::process::Command;

/// Builds a library from a source of this repository, with the C compiler that Rust links with anyway.
pub fn build_shim(source: &str, library: &Path) {
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-o"])
        .arg(library)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
        .args(["-ldl", "-lpthread"])
        .output()
        .expect("cc exists wherever Rust links");
    assert!(built.status.success(), "cc: {}", String::from_utf8_lossy(&built.stderr));
}
