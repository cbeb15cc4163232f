//! Notice that a server ends, for tunnels that outlive their connection.

use tokio::sync::watch;

/// Notice that a server ends.
///
/// A tunnel over HTTP/1.1 is no connection of the server any more. It holds this as long as it is open:
/// the server then waits for it as for open requests. Requests for a tunnel have it as an extension.
#[derive(Clone, Debug)]
pub(crate) struct Ending(pub(crate) watch::Receiver<bool>);

impl Ending {
    /// Waits until the server ends.
    pub(crate) async fn begun(&mut self) {
        if self.0.wait_for(|ended| *ended).await.is_err() {
            // The server was dropped: its runtime goes on without an end.
            std::future::pending::<()>().await;
        }
    }

    /// True once the server ends.
    #[cfg(feature = "proxy")]
    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
    }
}
