//! Any bytes as a task of a scan, with a checksum that is right: an error, or a scan that ends.
#![no_main]

use arrow_array::{Int64Array, RecordBatch};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};
use thalweg_table::{CreateOptions, Engine, EngineOptions, ScanRequest, ScanTask};

/// A database with one table, and a task of it.
static TASK: LazyLock<(Engine, Vec<u8>)> = LazyLock::new(|| {
    let engine = Engine::in_memory(EngineOptions { background: false, ..EngineOptions::default() }).unwrap();
    let times = Arc::new(Int64Array::from_iter_values(0..10_000));
    let rows = RecordBatch::try_from_iter([("ts", times as _)]).unwrap();
    let table = engine.create_table("air", &rows.schema(), &CreateOptions::stream("ts")).unwrap();
    table.append([Ok(rows)], None).unwrap();
    let tasks = table.view().unwrap().scan_tasks(&ScanRequest::default(), 1).unwrap();
    let message = tasks[0].encode().unwrap();
    (engine, message)
});

const HEAD_BYTES: usize = 32;
const CRC_AT: usize = 8;

fuzz_target!(|input: &[u8]| {
    let (engine, task) = &*TASK;
    for message in [[&task[..HEAD_BYTES], input].concat(), changed(task, input)] {
        let mut message = message;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&message[..CRC_AT]), &message[CRC_AT + 4..]);
        message[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        if let Ok(task) = ScanTask::decode(engine, &message) {
            let _ = task.run().map(Iterator::last);
        }
    }
});

/// The task with some of its bytes replaced: the input is a list of places and bytes.
fn changed(task: &[u8], input: &[u8]) -> Vec<u8> {
    let mut changed = task.to_vec();
    for change in input.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
        if let Some(byte) = changed[HEAD_BYTES..].get_mut(at) {
            *byte = change[2];
        }
    }
    changed
}
