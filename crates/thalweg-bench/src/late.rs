//! Experiment 3: the cost of late rows, inserted in place as in ChronicleDB, or kept in blocks beside the data as in this engine.
//!
//! A counting model, not a measurement: both ways get the same arrivals; bytes written, blocks touched and how many blocks
//! a reader has to merge are counted. In place (ChronicleDB, section 5.7): late events wait in a sorted queue with a
//! mirror log; a full queue is inserted leaf by leaf, each touched leaf costs a redo record per event and, when the
//! buffer is flushed, its macro block; a leaf without spare room splits. Beside (this engine): each bulk is written once
//! as rows, once as a block, and a region is rewritten when it is 5 % late or 8 blocks deep.

const EVENTS: usize = 2_000_000;
const ROW_BYTES: f64 = 72.0;
/// Encoded bytes of a row, as measured on the benchmark's events.
const ENCODED_ROW_BYTES: f64 = 9.4;
const BULK: usize = 10_000;

/// ChronicleDB's defaults (section 7.1): 8 KiB leaves, 32 KiB macro blocks, 10 % spare, a queue of 8,192 events.
const LEAF_ROWS: usize = 8192 / 72;
const MACRO_BYTES: f64 = 32.0 * 1024.0;
const LEAVES_PER_MACRO: usize = (32.0 * 1024.0 / (8192.0 * ENCODED_ROW_BYTES / ROW_BYTES)) as usize;
const SPARE: f64 = 0.1;
const QUEUE_ROWS: usize = 8192;

/// The same sizes for this engine.
const BLOCK_ROWS: usize = 4096;
const REGION_LATE_SHARE: f64 = 0.05;
const REGION_DEPTH: usize = 8;

struct Arrivals {
    name: &'static str,
    /// Share of late events.
    late: f64,
    /// Mean delay in events; `None`: uniform since the last bulk.
    exponential: Option<f64>,
}

pub(crate) fn run() {
    figure!("late rows, {EVENTS} events, bulks of late ones after every {BULK}");
    let cases = [
        Arrivals {
            name: "1 % uniform",
            late: 0.01,
            exponential: None,
        },
        Arrivals {
            name: "5 % uniform",
            late: 0.05,
            exponential: None,
        },
        Arrivals {
            name: "10 % uniform",
            late: 0.10,
            exponential: None,
        },
        Arrivals {
            name: "1 % exponential",
            late: 0.01,
            exponential: Some(5_000.0),
        },
        Arrivals {
            name: "5 % exponential",
            late: 0.05,
            exponential: Some(5_000.0),
        },
        Arrivals {
            name: "10 % exponential",
            late: 0.10,
            exponential: Some(5_000.0),
        },
        Arrivals {
            name: "10 % over a million events",
            late: 0.10,
            exponential: Some(500_000.0),
        },
    ];
    for case in cases {
        let bulks = bulks(&case);
        let (place, beside) = (in_place(&bulks), beside(&bulks));
        for (way, cost) in [("in place", place), ("beside", beside)] {
            figure!(
                "{}, {way}: {:.0} bytes written per late row, {:.3} blocks touched per late row, {:.2} blocks merged at read (at most {})",
                case.name,
                cost.bytes_per_row,
                cost.blocks_per_row,
                cost.mean_fan_in,
                cost.max_fan_in
            );
        }
    }
}

#[derive(Default)]
struct Cost {
    bytes_per_row: f64,
    blocks_per_row: f64,
    mean_fan_in: f64,
    max_fan_in: usize,
}

/// Positions of the late events of each bulk, sorted; the same seed for both ways.
fn bulks(case: &Arrivals) -> Vec<Vec<usize>> {
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as f64 / (1_u64 << 53) as f64
    };
    (1..=EVENTS / BULK)
        .map(|bulk| {
            let end = (bulk * BULK) as f64;
            let count = (BULK as f64 * case.late) as usize;
            let mut delay = || match case.exponential {
                None => random() * BULK as f64,
                Some(mean) => -mean * (1.0 - random()).ln(),
            };
            let mut late: Vec<usize> = (0..count)
                .map(|_| (end - delay()).max(0.0) as usize)
                .collect();
            late.sort_unstable();
            late
        })
        .collect()
}

fn in_place(bulks: &[Vec<usize>]) -> Cost {
    let room = (LEAF_ROWS as f64 * SPARE) as usize;
    let mut filled = vec![0; EVENTS / LEAF_ROWS + 2];
    let (mut bytes, mut touched, mut rows) = (0.0, 0, 0);
    let mut queue: Vec<usize> = Vec::new();
    for bulk in bulks {
        queue.extend(bulk);
        rows += bulk.len();
        bytes += bulk.len() as f64 * ROW_BYTES; // The mirror log.
        if queue.len() < QUEUE_ROWS {
            continue;
        }
        queue.sort_unstable();
        bytes += queue.len() as f64 * (ROW_BYTES + 16.0); // The redo log.
        let mut leaves: Vec<usize> = queue.drain(..).map(|at| at / LEAF_ROWS).collect();
        for leaf in &leaves {
            filled[*leaf] += 1;
            if filled[*leaf] > room {
                filled[*leaf] = 0;
                bytes += MACRO_BYTES; // Half of the leaf moves to a new block at the end.
                touched += 2;
            }
        }
        leaves.dedup();
        touched += leaves.len();
        let mut macros: Vec<usize> = leaves.iter().map(|leaf| leaf / LEAVES_PER_MACRO).collect();
        macros.dedup();
        bytes += macros.len() as f64 * MACRO_BYTES;
    }
    let rows = rows.max(1) as f64;
    Cost {
        bytes_per_row: bytes / rows,
        blocks_per_row: touched as f64 / rows,
        mean_fan_in: 1.0,
        max_fan_in: 1,
    }
}

fn beside(bulks: &[Vec<usize>]) -> Cost {
    let regions = EVENTS / BLOCK_ROWS + 2;
    let (mut late_rows, mut depth) = (vec![0_usize; regions], vec![0_usize; regions]);
    let (mut bytes, mut touched, mut rows) = (0.0, 0, 0);
    let (mut fan_in_sum, mut fan_in_count, mut max_fan_in) = (0, 0, 1);
    for bulk in bulks {
        rows += bulk.len();
        // Written once as rows. Fewer rows than a block has would be encoded together with others; here each bulk is
        // encoded at once, the more expensive case.
        bytes += bulk.len() as f64 * (ROW_BYTES + ENCODED_ROW_BYTES);
        touched += 1;
        let (Some(first), Some(last)) = (bulk.first(), bulk.last()) else {
            continue;
        };
        bulk.iter().for_each(|at| late_rows[at / BLOCK_ROWS] += 1);
        for region in first / BLOCK_ROWS..=last / BLOCK_ROWS {
            depth[region] += 1;
            fan_in_sum += depth[region] + 1;
            fan_in_count += 1;
            max_fan_in = max_fan_in.max(depth[region] + 1);
            let share = late_rows[region] as f64 / BLOCK_ROWS as f64;
            if depth[region] >= REGION_DEPTH || (share >= REGION_LATE_SHARE && depth[region] > 1) {
                bytes += (BLOCK_ROWS + late_rows[region]) as f64 * ENCODED_ROW_BYTES;
                touched += depth[region] + 1;
                (late_rows[region], depth[region]) = (0, 0);
            }
        }
    }
    let rows = rows.max(1) as f64;
    Cost {
        bytes_per_row: bytes / rows,
        blocks_per_row: touched as f64 / rows,
        mean_fan_in: f64::from(fan_in_sum as u32) / f64::from(fan_in_count.max(1) as u32),
        max_fan_in,
    }
}
