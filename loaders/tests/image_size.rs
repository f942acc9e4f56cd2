//! Grids and token counts against mistral-common (fixture by reference/image_mistral_common.py).

use ember_loaders::image::{ImageGrid, SizeRule};

const MISTRAL_SMALL: SizeRule = SizeRule { longest_edge: 1540, cell: 28, max_tokens: None };
const PIXTRAL_12B: SizeRule = SizeRule { longest_edge: 1024, cell: 16, max_tokens: None };

/// Columns and rows.
type Grid = (usize, usize);

/// Columns, rows and tokens.
type Row = (usize, usize, usize);

#[test]
fn sizes_of_every_kind_have_mistral_common_s_grids_and_tokens() {
    // Width and height; what Mistral Small 3.x and Ministral 3 make of it, and what Pixtral-12B.
    const TABLE: &[((usize, usize), Row, Row)] = &[
        ((1, 1), (1, 1, 2), (1, 1, 2)),
        ((28, 28), (1, 1, 2), (2, 2, 6)),
        ((29, 28), (2, 1, 3), (2, 2, 6)),
        ((100, 50), (4, 2, 10), (7, 4, 32)),
        ((224, 224), (8, 8, 72), (14, 14, 210)),
        ((256, 256), (10, 10, 110), (16, 16, 272)),
        ((512, 512), (19, 19, 380), (32, 32, 1056)),
        ((640, 480), (23, 18, 432), (40, 30, 1230)),
        ((1024, 1024), (37, 37, 1406), (64, 64, 4160)),
        ((1540, 1540), (55, 55, 3080), (64, 64, 4160)),
        ((1920, 1080), (55, 31, 1736), (64, 36, 2340)),
        ((4000, 3000), (55, 42, 2352), (64, 48, 3120)),
        ((3000, 1), (55, 1, 56), (64, 1, 65)),
        ((14, 1540), (1, 55, 110), (1, 64, 128)),
    ];
    for &((width, height), small, pixtral) in TABLE {
        for (rule, (cols, rows, tokens)) in [(MISTRAL_SMALL, small), (PIXTRAL_12B, pixtral)] {
            let grid = rule.grid(width, height);
            assert_eq!(grid, ImageGrid { rows, cols }, "{width}x{height}");
            assert_eq!((grid.cells(), grid.tokens()), (cols * rows, tokens), "{width}x{height}");
        }
    }
}

#[test]
fn two_hundred_random_sizes_and_ties_have_mistral_common_s_grids() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/image/sizes.json");
    let rows: Vec<(usize, usize, Grid, Grid)> =
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(rows.len() > 200, "{}", rows.len());
    for (width, height, small, pixtral) in rows {
        for (rule, expected) in [(MISTRAL_SMALL, small), (PIXTRAL_12B, pixtral)] {
            let grid = rule.grid(width, height);
            assert_eq!((grid.cols, grid.rows), expected, "{width}x{height}");
        }
    }
}
