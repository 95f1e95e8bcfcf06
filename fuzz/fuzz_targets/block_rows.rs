//! Any bytes as the chunks of a block of a stream, all of their checksums sound: rows, an error, and never a panic; the same of
//! a filter.
//!
//! Input: rows (2), then chunks: column and role (1), codec chain (3), prelude length (1), length of the page (1), the bytes.
#![no_main]

use arrow_schema::{DataType, Field, Schema};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::LazyLock;
use thalweg_codec::{CodecChain, Decoder, EncodedChunk};
use thalweg_env::{Env, OpenMode};
use thalweg_kernel::block::{BlockBuilder, BlockSpec, EncodedBlock, ROWS_ORDER, Role};
use thalweg_kernel::index::Address;
use thalweg_kernel::store::Store;
use thalweg_kernel::{DatabaseId, FileId, TableId};
use thalweg_table::column::filter::{Fingerprint, may_have_value};
use thalweg_table::{Layouts, CreateOptions, TableDefinition, decode_block};

static DEFINITION: LazyLock<TableDefinition> = LazyLock::new(|| {
    let types = [DataType::Boolean, DataType::Int64, DataType::Float32, DataType::Decimal128(9, 0), DataType::Utf8];
    let fields = types.iter().enumerate().map(|(at, data_type)| Field::new(format!("c{at}"), data_type.clone(), true));
    TableDefinition::create(&Layouts::default(), &Schema::new(fields.collect::<Vec<_>>()), &CreateOptions::default()).unwrap()
});

fuzz_target!(|input: &[u8]| {
    let Some(block) = block(input) else { return };
    let env = Env::in_memory();
    env.storage().create_dir_all(Path::new("/db/data")).unwrap();
    let store = Store::new(env.clone(), "/db", DatabaseId([1; 16]), 1 << 20);
    let address = Address { file: FileId(5), ..block.entry.address };
    let file = env.storage().open(&store.fragment_path(address.file), OpenMode::CreateNew).unwrap();
    file.write_all_at(&block.bytes, 0).unwrap();
    let rows = block.entry.rows as usize;
    if let Ok(batch) = decode_block(&DEFINITION, &store, &address, None, 0..rows) {
        assert_eq!(batch.num_rows(), rows);
    }
    let _ = decode_block(&DEFINITION, &store, &address, Some(&[2, 5]), rows / 2..rows);
    let mut reader = store.block(&address).unwrap();
    let _ = may_have_value(&mut reader, &mut Decoder::new(), 2, Fingerprint::of_i64(7));
});

/// A block of these chunks; those that do not fit it are left out.
fn block(input: &[u8]) -> Option<EncodedBlock> {
    let (rows, mut rest) = input.split_first_chunk()?;
    let rows = u32::from(u16::from_le_bytes(*rows)) % 1_024 + 1;
    let spec = BlockSpec {
        table: TableId(1),
        layout: 1,
        level: 0,
        order: ROWS_ORDER,
        positions: rows,
        rows,
        key: 0,
        sorted: true,
        implicit_key: true,
    };
    let mut builder = BlockBuilder::new(spec, 4);
    let mut last = (0, 0);
    while let Some((&[what, kind, element, stage, prelude_bytes, page_bytes], after)) = rest.split_first_chunk() {
        let length = usize::from(prelude_bytes) + usize::from(page_bytes);
        let (bytes, after) = after.split_at_checked(length)?;
        rest = after;
        let codec = CodecChain::from_bytes([kind, element, stage, 0]).ok()?;
        let column_id = u32::from(what & 7);
        let role = [Role::Values, Role::Validity, Role::Filter][usize::from(what >> 3) % 3];
        let is_bits = codec.element == thalweg_codec::ElementType::Bits;
        let is_bytes = codec.element == thalweg_codec::ElementType::U8;
        let fits = match role {
            Role::Validity => is_bits,
            Role::Filter => is_bytes,
            _ => true,
        };
        let key = column_id << 8 | role as u32;
        let before = if role.is_front() { &mut last.0 } else { &mut last.1 };
        if !fits || key <= *before {
            continue;
        }
        *before = key;
        let chunk_rows = if role == Role::Filter { 32 } else { rows as usize };
        let chunk = EncodedChunk {
            codec,
            rows: chunk_rows,
            prelude_bytes: u32::from(prelude_bytes),
            page_row_ends: vec![chunk_rows as u32],
            page_ends: vec![length as u32],
            bytes: bytes.to_vec(),
            raw_bytes: 1_000,
        };
        builder.add_chunk(column_id, role, &chunk).ok()?;
    }
    builder.finish((0, 0), vec![]).ok()
}
