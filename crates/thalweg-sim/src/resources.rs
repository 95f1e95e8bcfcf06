//! Bounds of what an open database may take: memory, open files, disk space.
//!
//! Invariants: every bound follows from the data alone, so that a leak grows out of it; the constants leave room for
//! caches and headers of small databases, not for growth.

use crate::hooks::allocated_bytes;
use crate::oracle::Violation;
use crate::shape::{DIR, Shape};
use crate::toy::Toy;
use std::path::Path;
use thalweg_env::sim::SimEnv;
use thalweg_kernel::{Commit, Durability, Edit};

/// Handles that a process may have open beside one of each file: the log, `live`, the root, the lock, a reader's slot.
const OTHER_HANDLES: usize = 12;
/// Files that are gone and that a reader may still have open when it holds no snapshot: those of its last statement.
const REMOVED_FILES: usize = 8;
/// Memory of a database without tables, and of what its cache keeps of pages and heads that nothing needs any more.
const BASE_MEMORY_BYTES: u64 = 128 << 10;
const TABLE_MEMORY_BYTES: u64 = 4 << 10;
/// Memory of a block in the index and of its head in the cache, and of each of its columns.
const BLOCK_MEMORY_BYTES: u64 = 1_056;
const COLUMN_MEMORY_BYTES: u64 = 384;
/// Disk space of a database without tables, less its segments.
const BASE_DISK_BYTES: u64 = 64 << 10;
/// Segments of a database without tables: that of the log, those of two checkpoints, spares.
const BASE_SEGMENTS: u64 = 8;

/// After a process has closed its databases it has no file open.
pub fn check_closed(sim: &SimEnv, process_id: u32) -> Result<(), Violation> {
    match sim.open_handles(process_id) {
        0 => Ok(()),
        left => Err(format!(
            "process {process_id} closed its database and has {left} files open"
        )),
    }
}

/// A process has a bounded number of files open.
pub fn check_open_files(sim: &SimEnv, process_id: u32) -> Result<(), Violation> {
    let (open, files) = (sim.open_handles(process_id), sim.files().len());
    let removed = sim.open_removed_files(process_id);
    if open - removed <= 2 * files + OTHER_HANDLES {
        Ok(())
    } else {
        Err(format!(
            "process {process_id} has {open} files open of {files}, {removed} of them removed"
        ))
    }
}

/// A reader without snapshots lets go of files that were removed.
pub fn check_reader_files(sim: &SimEnv, process_id: u32) -> Result<(), Violation> {
    check_open_files(sim, process_id)?;
    let removed = sim.open_removed_files(process_id);
    if removed <= REMOVED_FILES {
        Ok(())
    } else {
        Err(format!(
            "reader {process_id} holds no snapshot and keeps {removed} removed files open"
        ))
    }
}

/// Bytes of the files of a database.
pub fn disk_bytes(sim: &SimEnv) -> u64 {
    let files = sim.files().into_iter();
    files
        .filter(|(path, _)| path.starts_with(Path::new(DIR)))
        .map(|(_, bytes)| bytes)
        .sum()
}

/// Once all tables are dropped, the files are those of a database without tables.
pub fn check_space_after_drops(sim: &SimEnv, shape: &Shape, toy: &Toy) -> Result<(), Violation> {
    let failed = |doing: &'static str| move |e| format!("{doing} to free space: {e:?}");
    let tables: Vec<_> = {
        let snapshot = toy.kernel.snapshot().map_err(failed("a snapshot"))?;
        snapshot.tables().map(|table| table.id).collect()
    };
    let edits = tables.into_iter().map(|table| Edit::DropTable { table });
    let commit = Commit {
        edits: edits.collect(),
        ..Commit::default()
    };
    if !commit.edits.is_empty() {
        let dropped = toy.kernel.commit(commit, Durability::Disk);
        dropped.map_err(failed("dropping all tables"))?;
    }
    // The checkpoint before the last one is needed until there are two newer ones.
    for _ in 0..2 {
        let created = toy
            .create("almost nothing")
            .map_err(failed("creating a table"))?;
        let edits = vec![Edit::DropTable { table: created }];
        let commit = Commit {
            edits,
            ..Commit::default()
        };
        let dropped = toy.kernel.commit(commit, Durability::Disk);
        dropped.map_err(failed("dropping a table"))?;
        toy.kernel.checkpoint().map_err(failed("a checkpoint"))?;
        toy.kernel.collect_garbage().map_err(failed("collecting"))?;
    }
    let (bytes, most) = (
        disk_bytes(sim),
        BASE_DISK_BYTES + BASE_SEGMENTS * shape.options.segment_bytes,
    );
    if bytes <= most {
        Ok(())
    } else {
        Err(format!(
            "{bytes} bytes of files are left of a database without tables, at most {most} may be: {:?}",
            sim.files()
        ))
    }
}

/// The bound of the memory of an open database, by its data.
pub fn memory_bound(toy: &Toy) -> Result<u64, Violation> {
    let snapshot = toy.kernel.snapshot();
    let snapshot = snapshot.map_err(|e| format!("a snapshot: {e:?}"))?;
    let mut bytes = BASE_MEMORY_BYTES;
    for table in snapshot.tables() {
        let open: usize = table.open_rows().map(|r| 512 + r.part.payload.len()).sum();
        bytes += TABLE_MEMORY_BYTES + 2 * open as u64;
        for total in table.trees().filter_map(|(_, tree)| tree.total()) {
            let columns = total.columns.len() as u64;
            bytes += total.blocks * (BLOCK_MEMORY_BYTES + columns * COLUMN_MEMORY_BYTES);
        }
    }
    Ok(bytes)
}

/// The memory that a database gives back when its process dies, and that it may have held: nothing where nobody counts.
pub fn memory_of(toy: Toy, sim: &SimEnv, process_id: u32) -> Result<Option<(u64, u64)>, Violation> {
    let most = memory_bound(&toy)?;
    // Closing would write, and the disk of the simulator is memory as well.
    sim.kill_process(process_id);
    let before = allocated_bytes();
    drop(toy);
    let freed = before
        .zip(allocated_bytes())
        .map(|(before, now)| before - now);
    Ok(freed.map(|freed| (u64::try_from(freed).unwrap_or(0), most)))
}
