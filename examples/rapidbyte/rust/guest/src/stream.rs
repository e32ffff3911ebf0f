//! A TCP connection of the host's, as tokio wants to see it.
//!
//! The host never blocks. There is nobody who could wake a task when bytes arrive, so a task that
//! would block wakes itself and yields: the connection and the query that waits for it share one
//! thread, and each must have its turn.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::host::{self, SocketReadResult, SocketWriteResult};
use crate::{ConnectorError, Outcome};

/// The most that the host gives at once.
const READ: u64 = 64 * 1024;

/// What the host said, where an `io::Error` is wanted.
#[derive(Debug)]
pub struct HostFault(pub ConnectorError);

impl std::fmt::Display for HostFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)
    }
}

impl std::error::Error for HostFault {}

pub struct HostStream {
    handle: u64,
    /// Read and not yet taken, from `taken` on: tokio-postgres asks for 8 KB at a time.
    ahead: Vec<u8>,
    taken: usize,
}

impl HostStream {
    pub fn connect(name: &str, port: u16) -> Outcome<Self> {
        let handle = host::connect_tcp(name, port)?;
        Ok(Self { handle, ahead: Vec::new(), taken: 0 })
    }
}

impl Drop for HostStream {
    fn drop(&mut self) {
        host::socket_close(self.handle);
    }
}

fn failed<T>(fault: ConnectorError) -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::Error::other(HostFault(fault))))
}

fn later<T>(context: &mut Context<'_>) -> Poll<T> {
    context.waker().wake_by_ref();
    Poll::Pending
}

impl AsyncRead for HostStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.taken == self.ahead.len() {
            match host::socket_read(self.handle, READ) {
                Ok(SocketReadResult::Data(data)) => (self.ahead, self.taken) = (data, 0),
                Ok(SocketReadResult::Eof) => return Poll::Ready(Ok(())),
                Ok(SocketReadResult::WouldBlock) => return later(context),
                Err(fault) => return failed(fault),
            }
        }
        let many = into.remaining().min(self.ahead.len() - self.taken);
        into.put_slice(&self.ahead[self.taken..self.taken + many]);
        self.taken += many;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HostStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match host::socket_write(self.handle, data) {
            Ok(SocketWriteResult::Written(many)) => Poll::Ready(Ok(many as usize)),
            Ok(SocketWriteResult::WouldBlock) => later(context),
            Err(fault) => failed(fault),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        host::socket_close(self.handle);
        Poll::Ready(Ok(()))
    }
}
