//! The fuzzer's entry function over its seeds, and over fixed mutations of them.

#[path = "../fuzz/entries/gguf.rs"]
mod entry;

use std::fs;
use std::path::PathBuf;

use ember_test_support::Random;
use entry::fuzz_gguf;

fn seeds() -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/gguf");
    let mut seeds: Vec<(String, Vec<u8>)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    seeds.sort();
    seeds
}

const INTERESTING: [u64; 10] = [0, 1, 4, 8, 9, 1 << 31, u32::MAX as u64, 1 << 40, 1 << 63, u64::MAX];

/// One to four random changes: flipped bits, overwritten numbers, cuts, moved pieces.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let len = bytes.len();
        let at = random.below(len.max(1));
        match random.below(6) {
            0 if len > 0 => bytes[at] ^= 1 << random.below(8),
            1 if len > 0 => bytes[at] = random.below(256) as u8,
            2 => {
                let number = INTERESTING[random.below(INTERESTING.len())].to_le_bytes();
                let width = [4, 8][random.below(2)].min(len - at.min(len));
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            3 => bytes.truncate(at),
            4 => {
                let end = at + random.below(len - at + 1);
                bytes.drain(at..end);
            }
            _ => {
                let end = at + random.below((len - at).min(200) + 1);
                let piece = bytes[at..end].to_vec();
                let to = random.below(len + 1);
                bytes.splice(to..to, piece);
            }
        }
    }
}

#[test]
fn seeds_hold() {
    let seeds = seeds();
    assert!(seeds.len() >= 7, "{} seeds", seeds.len());
    for (name, bytes) in &seeds {
        println!("{name}");
        fuzz_gguf(bytes);
    }
}

#[test]
fn mutated_seeds_hold() {
    for (name, bytes) in seeds() {
        let mut random = Random::new(1);
        for round in 0..4000 {
            let mut mutated = bytes.clone();
            mutate(&mut mutated, &mut random);
            if round % 1000 == 0 {
                println!("{name}, round {round}");
            }
            fuzz_gguf(&mutated);
        }
    }
}
