//! Record batches over the host's frames: one frame is one complete Arrow IPC stream.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;

use crate::host;
use crate::stream::HostFault;
use crate::{Outcome, faults};

/// A frame that is being written. Each piece of the stream goes to the host as it comes.
struct Frame {
    handle: u64,
    length: u64,
}

impl Write for Frame {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.length =
            host::frame_write(self.handle, piece).map_err(|e| io::Error::other(HostFault(e)))?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hand a batch to the next stage; waits while that is behind. Gives the bytes of its frame.
pub fn emit(batch: &RecordBatch) -> Outcome<u64> {
    let hint = batch.get_array_memory_size() as u64 + 1024;
    let mut frame = Frame { handle: host::frame_new(hint)?, length: 0 };
    let handle = frame.handle;
    let written = write(batch, &mut frame).map_err(|e| {
        host::frame_drop(handle);
        faults::internal("FRAME_ENCODE", e.to_string())
    });
    written?;
    host::frame_seal(handle)?;
    host::emit_batch(handle)?;
    Ok(frame.length)
}

fn write(batch: &RecordBatch, frame: &mut Frame) -> Result<(), arrow_schema::ArrowError> {
    let mut writer = StreamWriter::try_new(frame, &batch.schema())?;
    writer.write(batch)?;
    writer.finish()
}

/// The batches of one frame, which may be none, and the bytes of it.
pub struct Received {
    pub schema: arrow_schema::SchemaRef,
    pub batches: Vec<RecordBatch>,
    pub bytes: u64,
}

/// The next frame; none: the stream is at its end. An error: the stage before failed.
pub fn next(longest: u64) -> Outcome<Option<(u64, Vec<u8>)>> {
    let Some(handle) = host::next_batch()? else {
        return Ok(None);
    };
    let length = host::frame_len(handle)?;
    if length > longest {
        host::frame_drop(handle);
        let said = format!("a frame of {length} bytes, max_batch_bytes is {longest}");
        return Err(faults::internal("BATCH_TOO_LARGE", said));
    }
    let bytes = host::frame_read(handle, 0, length);
    host::frame_drop(handle);
    Ok(Some((length, bytes?)))
}

pub fn decode(length: u64, bytes: Vec<u8>) -> Outcome<Received> {
    let broken = |e: String| faults::internal("NEXT_BATCH_DECODE", e);
    let mut rest = Buffer::from_vec(bytes);
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    while let Some(batch) = decoder.decode(&mut rest).map_err(|e| broken(e.to_string()))? {
        batches.push(batch);
    }
    let schema = decoder.schema().ok_or_else(|| broken("a frame without a schema".to_owned()))?;
    Ok(Received { schema, batches, bytes: length })
}
