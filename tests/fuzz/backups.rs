//! Backups with right checksums and any contents: whatever they have, they are read, or refused with a reason.
//!
//! An input is a list of frames without their checksums: a letter, two bytes of length, the content. The last frame has
//! the rest. `fuzz/fuzz_targets/backup.rs` uses the same judge.

use angarium_backup::{MAGIC, frame, read};

/// Returns the backup of these frames, with their checksums.
fn sealed(mut input: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for number in 0.. {
        let Some(([letter, high, low], rest)) = input.split_first_chunk() else { break };
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (content, behind) = rest.split_at(length);
        bytes.extend_from_slice(&frame(*letter, number, content));
        input = behind;
    }
    bytes
}

/// Reads the backup of an input, and the input as it is. Returns whether the first one is whole. Panics if a refusal has
/// no reason.
pub fn check(input: &[u8]) -> bool {
    for bytes in [input, &[MAGIC, input].concat()] {
        let refused = read(bytes, &mut ()).expect_err("it has no checksums");
        assert!(!refused.to_string().trim().is_empty());
    }
    match read(&*sealed(input), &mut ()) {
        Ok(_) => true,
        Err(refused) => {
            assert!(!refused.to_string().trim().is_empty());
            false
        }
    }
}
