//! Block tables and the prefix cache by themselves.
use ember::engine::{
    BlockManager, BlockTable, BlockUsage, CacheScope, CachedPrefix, Content, HashBlock, ImageKey,
};

const ALL_EQUAL: HashBlock = |_, _| 7;

fn content(blocks: &BlockManager, tokens: &[u32]) -> Content {
    blocks.content(tokens.to_vec(), Vec::new(), CacheScope::default())
}

/// A table whose blocks hold the content, as far as it fills them.
fn written(blocks: &BlockManager, content: &Content) -> BlockTable {
    let mut table = blocks.table();
    table.adopt(content, content.len());
    assert!(table.reserve(content.len()));
    table.publish(content, content.len());
    table
}

fn usage(blocks: &BlockManager) -> (usize, usize, usize) {
    let BlockUsage { held, idle, free } = blocks.usage();
    (held, idle, free)
}

#[test]
fn a_table_takes_blocks_and_gives_them_back_when_it_is_dropped() {
    let blocks = BlockManager::new(4, 8);
    let mut table = blocks.table();
    assert!(table.reserve(9));
    assert_eq!((table.blocks(), usage(&blocks)), (&[0, 1][..], (2, 0, 2)));
    assert!(table.reserve(16), "there is room already");
    assert!(!table.reserve(33), "more than the pool");
    assert_eq!(usage(&blocks), (2, 0, 2), "all or nothing");
    assert_eq!(table.truncate(8), 8);
    assert_eq!((table.blocks(), usage(&blocks)), (&[0][..], (1, 0, 3)));
    // It grows into the block that it had.
    assert!(table.reserve(9));
    assert_eq!(table.blocks(), [0, 1]);
    drop(table);
    assert_eq!(usage(&blocks), (0, 0, 4));
}

#[test]
fn full_blocks_are_shared_and_the_last_one_is_not() {
    let blocks = BlockManager::new(8, 4);
    let content = content(&blocks, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let first = written(&blocks, &content);
    assert_eq!((first.blocks(), first.cached_entries()), (&[0, 1, 2][..], 8));
    let mut second = blocks.table();
    assert_eq!(second.adopt(&content, 9), 8);
    assert!(second.reserve(10));
    assert_eq!(second.blocks(), [0, 1, 3]);
    let holders = |block| (blocks.holders(block), blocks.is_cached(block));
    assert_eq!([0, 1, 2, 3].map(holders), [(2, true), (2, true), (1, false), (1, false)]);
    drop(first);
    assert_eq!([0, 1, 2, 3].map(holders), [(1, true), (1, true), (0, false), (1, false)]);
    drop(second);
    assert_eq!(usage(&blocks), (0, 2, 6));
}

#[test]
fn the_limit_leaves_tokens_to_run() {
    let blocks = BlockManager::new(8, 4);
    let content = content(&blocks, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let _held = written(&blocks, &content);
    let entries = |limit| blocks.cached_prefix(&content, limit);
    assert_eq!(entries(8), CachedPrefix { entries: 8, held_blocks: 2 });
    assert_eq!(entries(7), CachedPrefix { entries: 4, held_blocks: 1 });
    assert_eq!(entries(3), CachedPrefix { entries: 0, held_blocks: 0 });
    assert_eq!(blocks.table().adopt(&content, 7), 4);
}

#[test]
fn what_two_write_at_once_is_kept_once() {
    let blocks = BlockManager::new(8, 4);
    let content = content(&blocks, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let [mut a, mut b] = [(); 2].map(|()| blocks.table());
    assert!(a.reserve(9) && b.reserve(9));
    assert_eq!((a.blocks(), b.blocks()), (&[0, 1, 2][..], &[3, 4, 5][..]));
    a.publish(&content, 6);
    b.publish(&content, 8);
    // The first block was there; the second was not, and is now.
    assert_eq!((a.blocks(), b.blocks()), (&[0, 1, 2][..], &[0, 4, 5][..]));
    a.publish(&content, 9);
    assert_eq!((a.blocks(), usage(&blocks)), (&[0, 4, 2][..], (4, 0, 4)));
}

#[test]
fn blocks_are_evicted_after_the_longest_idle_time_and_children_before_parents() {
    let blocks = BlockManager::new(6, 2);
    let [a, b] = [[1, 1, 2, 2, 3, 3], [4, 4, 5, 5, 6, 6]].map(|tokens| content(&blocks, &tokens));
    let cached = || [&a, &b].map(|content| blocks.cached_prefix(content, 6).entries);
    let [table_a, table_b] = [&a, &b].map(|content| written(&blocks, content));
    drop(table_a);
    drop(table_b);
    assert_eq!((cached(), usage(&blocks)), ([6, 6], (0, 6, 0)));
    // The use of its first block makes that one of `a` the last to go.
    let mut user = blocks.table();
    assert_eq!(user.adopt(&a, 2), 2);
    drop(user);
    let mut evicting = blocks.table();
    let mut left = Vec::new();
    for n in 1..=6 {
        assert!(evicting.reserve(2 * n));
        left.push(cached());
    }
    assert_eq!(left, [[4, 6], [2, 6], [2, 4], [2, 2], [2, 0], [0, 0]]);
    assert!(!evicting.reserve(14));
}

#[test]
fn equal_hashes_of_different_content_are_told_apart() {
    let blocks = BlockManager::with_hash(16, 2, ALL_EQUAL);
    let a = content(&blocks, &[1, 1, 2, 2, 3, 3]);
    let _held = written(&blocks, &a);
    let entries = |tokens: &[u32]| blocks.cached_prefix(&content(&blocks, tokens), 6).entries;
    assert_eq!(entries(&[1, 1, 2, 2, 3, 3]), 6);
    assert_eq!(entries(&[1, 1, 2, 2, 9, 9]), 4);
    // The same blocks behind another one, or in another order.
    assert_eq!([entries(&[9, 9, 2, 2, 3, 3]), entries(&[2, 2, 3, 3]), entries(&[1, 1, 3, 3])], [0, 0, 2]);
    let b = content(&blocks, &[9, 9, 2, 2, 3, 3]);
    let other = written(&blocks, &b);
    assert_eq!((other.blocks(), entries(&[9, 9, 2, 2, 3, 3])), (&[3, 4, 5][..], 6));
    // One that goes leaves the others.
    drop(other);
    assert!(blocks.table().reserve(26), "evicts all idle ones");
    assert_eq!((entries(&[9, 9, 2, 2, 3, 3]), entries(&[1, 1, 2, 2, 3, 3])), (0, 6));
}

#[test]
fn other_images_salts_and_adapters_are_other_content() {
    let tokens = vec![1, 10, 10, 11, 2, 3, 4, 5];
    let scopes = [
        CacheScope::default(),
        CacheScope { salt: Some("a".into()), ..CacheScope::default() },
        CacheScope { salt: Some("b".into()), ..CacheScope::default() },
        CacheScope { adapter: Some([1; 32]), ..CacheScope::default() },
        CacheScope { adapter: Some([2; 32]), ..CacheScope::default() },
    ];
    let image = |start, hash| ImageKey { start, end: start + 3, hash: [hash; 32] };
    // None, one, another one, the same at another place, and one that only the second block has.
    let images = [vec![], vec![image(1, 1)], vec![image(1, 2)], vec![image(0, 1)], vec![image(4, 1)]];
    for hash in [None, Some(ALL_EQUAL)] {
        let blocks = match hash {
            Some(hash) => BlockManager::with_hash(100, 4, hash),
            None => BlockManager::new(100, 4),
        };
        let every = scopes.iter().flat_map(|scope| {
            let blocks = blocks.clone();
            let tokens = tokens.clone();
            images.iter().map(move |images| blocks.content(tokens.clone(), images.clone(), scope.clone()))
        });
        let mut held = Vec::new();
        for (i, content) in every.enumerate() {
            // The image that begins behind the first block leaves it as it is without one.
            let expected = if i % 5 == 4 { 4 } else { 0 };
            assert_eq!(blocks.cached_prefix(&content, 8).entries, expected, "content {i}");
            held.push(written(&blocks, &content));
            assert_eq!(blocks.cached_prefix(&content, 8).entries, 8);
        }
        assert_eq!(usage(&blocks).0, 2 * 25 - 5);
    }
}

#[test]
fn the_content_of_one_owner_goes_with_its_last_holder() {
    let blocks = BlockManager::new(8, 2);
    let shared = content(&blocks, &[1, 1, 2, 2]);
    let owned = shared.clone().owned_by(5);
    let a = written(&blocks, &owned);
    assert_eq!(blocks.cached_prefix(&shared, 4).entries, 0);
    assert_eq!(blocks.cached_prefix(&shared.clone().owned_by(6), 4).entries, 0);
    let b = written(&blocks, &owned);
    assert_eq!(a.blocks(), b.blocks());
    drop(a);
    assert_eq!(blocks.cached_prefix(&owned, 4).entries, 4);
    drop(b);
    assert_eq!((blocks.cached_prefix(&owned, 4).entries, usage(&blocks)), (0, (0, 0, 8)));
}

#[test]
fn a_cut_into_a_cached_block_gives_the_block_up() {
    let blocks = BlockManager::new(8, 4);
    let content = content(&blocks, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let mut table = written(&blocks, &content);
    assert_eq!((table.truncate(9), table.blocks().len()), (9, 3));
    assert_eq!((table.truncate(8), table.blocks().len()), (8, 2));
    assert_eq!((table.truncate(7), table.blocks().len(), table.cached_entries()), (4, 1, 4));
    assert_eq!(usage(&blocks), (1, 1, 6));
}

#[test]
fn what_a_failed_sequence_wrote_is_forgotten_unless_others_use_it() {
    let blocks = BlockManager::new(8, 2);
    let [whole, beginning] = [&[1, 1, 2, 2, 3, 3, 4, 4][..], &[1, 1, 2, 2]].map(|t| content(&blocks, t));
    let other = written(&blocks, &beginning);
    let mut failed = written(&blocks, &whole);
    failed.forget();
    drop(failed);
    assert_eq!((blocks.cached_prefix(&whole, 8).entries, usage(&blocks)), (4, (2, 0, 6)));
    // Alone with it, a sequence takes all of it along, but for what has a continuation.
    drop(other);
    let longer = written(&blocks, &whole);
    drop(longer);
    let mut failed = blocks.table();
    failed.adopt(&beginning, 4);
    failed.forget();
    drop(failed);
    assert_eq!(blocks.cached_prefix(&whole, 8).entries, 8);
    let mut failed = written(&blocks, &whole);
    failed.forget();
    drop(failed);
    assert_eq!((blocks.cached_prefix(&whole, 8).entries, usage(&blocks)), (0, (0, 0, 8)));
}
