//! Arguments to configuration to command to exit code.

fn main() {}
