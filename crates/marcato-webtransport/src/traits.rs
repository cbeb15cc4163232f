//! Traits of `web-transport-trait`, of each version that is built.

/// Implements the traits of one version, whose priorities are of type `$number`.
macro_rules! traits {
    ($module:ident, $traits:ident, $number:ty) => {
        mod $module {
            use std::future::poll_fn;
            use std::task::{Context, Poll};
            use std::time::Duration;

            use bytes::{Buf, BufMut, Bytes};
            use $traits as api;

            use crate::error::Error;
            use crate::recv::RecvStream;
            use crate::send::SendStream;
            use crate::session::{Figures, Session};

            impl api::Error for Error {
                fn session_error(&self) -> Option<(u32, String)> {
                    self.of_session()
                }

                fn stream_error(&self) -> Option<u32> {
                    self.of_stream()
                }
            }

            impl api::Stats for Figures {
                fn bytes_sent(&self) -> Option<u64> {
                    Some(self.bytes)
                }

                fn packets_sent(&self) -> Option<u64> {
                    Some(self.packets)
                }

                fn packets_lost(&self) -> Option<u64> {
                    Some(self.lost)
                }

                fn rtt(&self) -> Option<Duration> {
                    self.rtt
                }

                fn estimated_send_rate(&self) -> Option<u64> {
                    Some(self.rate).filter(|rate| *rate > 0)
                }
            }

            impl api::Session for Session {
                type SendStream = SendStream;
                type RecvStream = RecvStream;
                type Error = Error;

                async fn accept_uni(&self) -> Result<RecvStream, Error> {
                    let mut handle = self.clone();
                    poll_fn(|context| handle.accept_uni_next(context)).await
                }

                async fn accept_bi(&self) -> Result<(SendStream, RecvStream), Error> {
                    let mut handle = self.clone();
                    poll_fn(|context| handle.accept_bi_next(context)).await
                }

                async fn open_bi(&self) -> Result<(SendStream, RecvStream), Error> {
                    let mut handle = self.clone();
                    poll_fn(|context| handle.open_bi_next(context)).await
                }

                async fn open_uni(&self) -> Result<SendStream, Error> {
                    let mut handle = self.clone();
                    poll_fn(|context| handle.open_uni_next(context)).await
                }

                fn send_datagram(&self, payload: Bytes) -> Result<(), Error> {
                    self.datagram(payload)
                }

                async fn recv_datagram(&self) -> Result<Bytes, Error> {
                    let mut handle = self.clone();
                    poll_fn(|context| handle.datagram_next(context)).await
                }

                fn max_datagram_size(&self) -> usize {
                    self.longest_datagram()
                }

                fn protocol(&self) -> Option<&str> {
                    self.alpn()
                }

                fn close(&self, code: u32, reason: &str) {
                    self.end(code, reason);
                }

                async fn closed(&self) -> Error {
                    let mut handle = self.clone();
                    poll_fn(|context| handle.ends(context)).await
                }

                fn stats(&self) -> impl api::Stats {
                    self.figures()
                }
            }

            impl api::SendStream for SendStream {
                type Error = Error;

                async fn write(&mut self, buf: &[u8]) -> Result<usize, Error> {
                    poll_fn(|context| self.write_some(context, buf)).await
                }

                async fn write_chunk(&mut self, chunk: Bytes) -> Result<(), Error> {
                    self.write_whole(chunk).await
                }

                fn set_priority(&mut self, order: $number) {
                    self.rank(order.into());
                }

                fn finish(&mut self) -> Result<(), Error> {
                    self.end()
                }

                fn reset(&mut self, code: u32) {
                    self.abandon(code);
                }

                async fn closed(&mut self) -> Result<(), Error> {
                    poll_fn(|context| self.ends(context)).await
                }
            }

            impl api::RecvStream for RecvStream {
                type Error = Error;

                async fn read(&mut self, dst: &mut [u8]) -> Result<Option<usize>, Error> {
                    poll_fn(|context| self.read_some(context, dst)).await
                }

                async fn read_chunk(&mut self, max: usize) -> Result<Option<Bytes>, Error> {
                    poll_fn(|context| self.chunk(context, max)).await
                }

                fn stop(&mut self, code: u32) {
                    self.refuse(code);
                }

                async fn closed(&mut self) -> Result<(), Error> {
                    poll_fn(|context| self.ends(context)).await
                }
            }

            impl api::poll::Session for Session {
                type SendStream = SendStream;
                type RecvStream = RecvStream;
                type Error = Error;

                fn poll_accept_uni(&mut self, cx: &mut Context<'_>) -> Poll<Result<RecvStream, Error>> {
                    self.accept_uni_next(cx)
                }

                fn poll_accept_bi(
                    &mut self,
                    cx: &mut Context<'_>,
                ) -> Poll<Result<(SendStream, RecvStream), Error>> {
                    self.accept_bi_next(cx)
                }

                fn poll_open_uni(&mut self, cx: &mut Context<'_>) -> Poll<Result<SendStream, Error>> {
                    self.open_uni_next(cx)
                }

                fn poll_open_bi(
                    &mut self,
                    cx: &mut Context<'_>,
                ) -> Poll<Result<(SendStream, RecvStream), Error>> {
                    self.open_bi_next(cx)
                }

                fn poll_send_datagram(
                    &mut self,
                    _: &mut Context<'_>,
                    payload: &[u8],
                ) -> Poll<Result<(), Error>> {
                    Poll::Ready(self.datagram(Bytes::copy_from_slice(payload)))
                }

                fn poll_recv_datagram(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Error>> {
                    self.datagram_next(cx)
                }

                fn max_datagram_size(&self) -> usize {
                    self.longest_datagram()
                }

                fn protocol(&self) -> Option<&str> {
                    self.alpn()
                }

                fn close(&mut self, code: u32, reason: &str) {
                    self.end(code, reason);
                }

                fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
                    self.ends(cx)
                }

                fn stats(&self) -> impl api::Stats {
                    self.figures()
                }
            }

            impl api::poll::SendStream for SendStream {
                type Error = Error;

                fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize, Error>> {
                    self.write_some(cx, buf)
                }

                fn poll_write_buf<B: Buf>(
                    &mut self,
                    cx: &mut Context<'_>,
                    buf: &mut B,
                ) -> Poll<Result<usize, Error>> {
                    self.write_from(cx, buf)
                }

                fn set_priority(&mut self, order: $number) {
                    self.rank(order.into());
                }

                fn finish(&mut self) -> Result<(), Error> {
                    self.end()
                }

                fn reset(&mut self, code: u32) {
                    self.abandon(code);
                }

                fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
                    self.ends(cx)
                }
            }

            impl api::poll::RecvStream for RecvStream {
                type Error = Error;

                fn poll_read(
                    &mut self,
                    cx: &mut Context<'_>,
                    dst: &mut [u8],
                ) -> Poll<Result<Option<usize>, Error>> {
                    self.read_some(cx, dst)
                }

                fn poll_read_buf<B: BufMut>(
                    &mut self,
                    cx: &mut Context<'_>,
                    buf: &mut B,
                ) -> Poll<Result<Option<usize>, Error>> {
                    self.read_into(cx, buf)
                }

                fn poll_read_chunk(
                    &mut self,
                    cx: &mut Context<'_>,
                    max: usize,
                ) -> Poll<Result<Option<Bytes>, Error>> {
                    self.chunk(cx, max)
                }

                fn stop(&mut self, code: u32) {
                    self.refuse(code);
                }

                fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
                    self.ends(cx)
                }
            }
        }
    };
}

traits!(v05, web_transport_trait, i32);
#[cfg(feature = "trait-04")]
traits!(v04, web_transport_trait_04, u8);
