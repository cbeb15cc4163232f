//! Objects that C names by numbers.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{self, Poll, Waker};

use bytes::Bytes;
use marcato_net::{
    AcceptError, CloseReason, Closed, ConnectError, Connection, Endpoint, LongMessage, LongSender, Message,
    MessageHandle, NotDelivered, Priority, Received, Request, RequestError, SendError,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::abi::{
    MARCATO_LOST, MARCATO_ON_ACCEPT, MARCATO_ON_CLOSED, MARCATO_ON_CONNECTED, MARCATO_ON_DELIVERY,
    MARCATO_ON_FINISHED, MARCATO_ON_MESSAGE, MARCATO_ON_READ, MARCATO_ON_REPLY, MARCATO_ON_REQUEST,
    MARCATO_ON_ROOM, MARCATO_ON_STREAM, MARCATO_ON_WRITE, MARCATO_UNDELIVERED,
};
use crate::failure::Failure;
use crate::ready::{ReadyList, lock};
use crate::slot::Slot;

/// Object of a context.
pub(crate) enum Object {
    Endpoint(Arc<Listening>),
    Connection(Arc<Connected>),
    Outgoing(Arc<Outgoing>),
    Incoming(Arc<Incoming>),
    Receipt(Arc<Receipt>),
    Reply(Arc<Reply>),
    Call(Arc<Call>),
}

/// Server that accepts connections.
pub(crate) struct Listening {
    pub(crate) endpoint: Arc<Endpoint>,
    accepting: Slot<Result<Connection, AcceptError>>,
}

impl Listening {
    pub(crate) fn new(endpoint: Endpoint, list: &Arc<ReadyList>, number: u64) -> Self {
        Self { endpoint: Arc::new(endpoint), accepting: Slot::new(list, number, MARCATO_ON_ACCEPT) }
    }

    pub(crate) fn accept(&self, runtime: &Handle) -> Option<Result<Connection, AcceptError>> {
        let endpoint = Arc::clone(&self.endpoint);
        self.accepting.poll(runtime, || async move { endpoint.accept().await })
    }
}

/// Progress of a connection.
enum State {
    Connecting(Option<JoinHandle<Result<Connection, ConnectError>>>),
    Open(Connection),
    Failed(Failure),
}

/// Connection with a peer.
pub(crate) struct Connected {
    state: Mutex<State>,
    connecting: Slot<Result<Connection, Failure>>,
    receiving: Slot<Result<Received, Closed>>,
    streams: Slot<Result<LongMessage, Closed>>,
    requests: Slot<Result<Request, Closed>>,
    finishing: Slot<Result<(), Closed>>,
    ending: Slot<Closed>,
    /// A message of each level that waits for room, if there is one. Only then is the level full for the program.
    waiting: [Arc<AtomicBool>; Priority::COUNT],
    room: Waker,
}

/// Message that was sent: at once, or as soon as there is room.
pub(crate) enum Sent {
    Now(MessageHandle),
    Later(oneshot::Receiver<Result<MessageHandle, SendError>>),
}

impl Connected {
    pub(crate) fn connecting(
        task: JoinHandle<Result<Connection, ConnectError>>,
        list: &Arc<ReadyList>,
        number: u64,
    ) -> Self {
        Self::new(State::Connecting(Some(task)), list, number)
    }

    pub(crate) fn accepted(connection: Connection, list: &Arc<ReadyList>, number: u64) -> Self {
        Self::new(State::Open(connection), list, number)
    }

    fn new(state: State, list: &Arc<ReadyList>, number: u64) -> Self {
        Self {
            state: Mutex::new(state),
            connecting: Slot::new(list, number, MARCATO_ON_CONNECTED),
            receiving: Slot::new(list, number, MARCATO_ON_MESSAGE),
            streams: Slot::new(list, number, MARCATO_ON_STREAM),
            requests: Slot::new(list, number, MARCATO_ON_REQUEST),
            finishing: Slot::new(list, number, MARCATO_ON_FINISHED),
            ending: Slot::new(list, number, MARCATO_ON_CLOSED),
            waiting: Default::default(),
            room: list.waker(number, MARCATO_ON_ROOM),
        }
    }

    /// Returns the connection; `None` while its handshake is not complete.
    pub(crate) fn open(&self, runtime: &Handle) -> Result<Option<Connection>, Failure> {
        let mut state = lock(&self.state);
        let task = match &mut *state {
            State::Open(connection) => return Ok(Some(connection.clone())),
            State::Failed(failure) => return Err(failure.clone()),
            State::Connecting(task) => task.take(),
        };
        let connected = self.connecting.poll(runtime, || async move {
            match task {
                Some(task) => match task.await {
                    Ok(connected) => connected.map_err(|error| Failure::from(&error)),
                    Err(error) => Err(Failure::new(MARCATO_LOST, error)),
                },
                // The slot holds the operation that has the task.
                None => Err(Failure::new(MARCATO_LOST, "the connection is not being made")),
            }
        });
        match connected {
            None => Ok(None),
            Some(Ok(connection)) => {
                *state = State::Open(connection.clone());
                Ok(Some(connection))
            }
            Some(Err(failure)) => {
                *state = State::Failed(failure.clone());
                Err(failure)
            }
        }
    }

    /// Sends a message; `None` if another of its level waits for room already.
    pub(crate) fn send(&self, runtime: &Handle, message: Message) -> Result<Option<Sent>, Failure> {
        let Some(connection) = self.open(runtime)? else { return Ok(None) };
        let waiting = &self.waiting[message.priority.index()];
        if waiting.load(Ordering::Acquire) {
            return Ok(None);
        }
        let _entered = runtime.enter();
        match connection.try_send(&message) {
            Ok(handle) => return Ok(Some(Sent::Now(handle))),
            Err(SendError::Busy { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        // It is accepted and waits in a task, as the last of its level.
        waiting.store(true, Ordering::Release);
        let (waiting, room, (sent, later)) = (Arc::clone(waiting), self.room.clone(), oneshot::channel());
        runtime.spawn(async move {
            let result = connection.send(message).await;
            waiting.store(false, Ordering::Release);
            room.wake_by_ref();
            // Without a receipt nobody waits for this.
            let _ = sent.send(result);
        });
        Ok(Some(Sent::Later(later)))
    }

    pub(crate) fn receive(&self, runtime: &Handle) -> Result<Option<Received>, Failure> {
        let Some(connection) = self.open(runtime)? else { return Ok(None) };
        let received = self.receiving.poll(runtime, || async move { connection.recv().await });
        received.transpose().map_err(Failure::from)
    }

    pub(crate) fn accept_stream(&self, runtime: &Handle) -> Result<Option<LongMessage>, Failure> {
        let Some(connection) = self.open(runtime)? else { return Ok(None) };
        let accepted = self.streams.poll(runtime, || async move { connection.accept_long().await });
        accepted.transpose().map_err(Failure::from)
    }

    pub(crate) fn accept_request(&self, runtime: &Handle) -> Result<Option<Request>, Failure> {
        let Some(connection) = self.open(runtime)? else { return Ok(None) };
        let accepted = self.requests.poll(runtime, || async move { connection.accept_request().await });
        accepted.transpose().map_err(Failure::from)
    }

    /// Ends sending; some once all that was sent is delivered.
    pub(crate) fn finish(&self, runtime: &Handle) -> Result<Option<()>, Failure> {
        let Some(connection) = self.open(runtime)? else { return Ok(None) };
        let finished = self.finishing.poll(runtime, || async move { connection.finish().await });
        finished.transpose().map_err(Failure::from)
    }

    /// Begins to close it, after all that was sent is delivered.
    pub(crate) fn close(&self, runtime: &Handle, reason: CloseReason) -> Result<Option<()>, Failure> {
        let Some(connection) = self.open(runtime)? else { return Ok(None) };
        runtime.spawn(async move { connection.close_with(reason).await });
        Ok(Some(()))
    }

    /// Returns the end of the connection, once it has ended.
    pub(crate) fn closed(&self, runtime: &Handle) -> Result<Option<Closed>, Failure> {
        let Some(connection) = self.open(runtime)? else { return Ok(None) };
        Ok(self.ending.poll(runtime, || async move { connection.closed().await }))
    }
}

/// Change of a message that has been sent.
enum Change {
    Cancel,
    Reprioritise(Priority),
}

/// Fate of a message.
pub(crate) struct Receipt {
    fate: Slot<Result<(), Failure>>,
    told: Mutex<Option<oneshot::Receiver<Result<(), Failure>>>>,
    changes: mpsc::UnboundedSender<Change>,
}

impl Receipt {
    pub(crate) fn new(runtime: &Handle, sent: Sent, list: &Arc<ReadyList>, number: u64) -> Self {
        let (changes, asked) = mpsc::unbounded_channel();
        let (tell, told) = oneshot::channel();
        runtime.spawn(async move {
            let _ = tell.send(follow(sent, asked).await);
        });
        Self { fate: Slot::new(list, number, MARCATO_ON_DELIVERY), told: Mutex::new(Some(told)), changes }
    }

    /// Returns the fate of the message, once it is certain.
    pub(crate) fn delivery(&self, runtime: &Handle) -> Option<Result<(), Failure>> {
        let told = lock(&self.told).take();
        self.fate.poll(runtime, || async move {
            let unknown =
                || Failure::new(MARCATO_UNDELIVERED, "the fate of the message has been told already");
            match told {
                Some(told) => told.await.map_err(|_| unknown())?,
                None => Err(unknown()),
            }
        })
    }

    pub(crate) fn cancel(&self) {
        // Nobody listens once the fate is certain, and then it stays as it is.
        let _ = self.changes.send(Change::Cancel);
    }

    pub(crate) fn reprioritise(&self, priority: Priority) {
        let _ = self.changes.send(Change::Reprioritise(priority));
    }
}

/// Waits for the fate of a message, and changes it as asked.
async fn follow(sent: Sent, mut asked: mpsc::UnboundedReceiver<Change>) -> Result<(), Failure> {
    let mut handle = match sent {
        Sent::Now(handle) => handle,
        Sent::Later(later) => match later.await {
            Ok(sent) => sent?,
            Err(_) => return Err(NotDelivered::Cancelled.into()),
        },
    };
    let mut is_asked = true;
    loop {
        tokio::select! {
            fate = handle.acknowledged() => return fate.map_err(Failure::from),
            change = asked.recv(), if is_asked => match change {
                // A message that has left is not changed any more; its fate tells.
                Some(Change::Cancel) => drop(handle.cancel()),
                Some(Change::Reprioritise(priority)) => drop(handle.reprioritise(priority)),
                None => is_asked = false,
            },
        }
    }
}

/// Stream that this end opened.
pub(crate) struct Outgoing {
    stream: Mutex<Option<LongSender>>,
    write: Waker,
    fate: Slot<Result<(), Failure>>,
}

impl Outgoing {
    pub(crate) fn new(stream: LongSender, list: &Arc<ReadyList>, number: u64) -> Self {
        let write = list.waker(number, MARCATO_ON_WRITE);
        Self { stream: Mutex::new(Some(stream)), write, fate: Slot::new(list, number, MARCATO_ON_DELIVERY) }
    }

    /// Accepts the first bytes of `data`, and returns how many.
    pub(crate) fn write(&self, runtime: &Handle, data: &[u8]) -> Result<Option<usize>, Failure> {
        self.poll(runtime, |stream, context| Pin::new(stream).poll_write(context, data))
    }

    /// Ends the stream; some once all its bytes have been handed over.
    pub(crate) fn end(&self, runtime: &Handle) -> Result<Option<()>, Failure> {
        self.poll(runtime, |stream, context| Pin::new(stream).poll_shutdown(context))
    }

    fn poll<T>(
        &self,
        runtime: &Handle,
        poll: impl FnOnce(&mut LongSender, &mut task::Context<'_>) -> Poll<std::io::Result<T>>,
    ) -> Result<Option<T>, Failure> {
        let mut stream = lock(&self.stream);
        let stream = stream.as_mut().ok_or_else(|| Failure::invalid("the stream has ended"))?;
        let _entered = runtime.enter();
        match poll(stream, &mut task::Context::from_waker(&self.write)) {
            Poll::Pending => Ok(None),
            Poll::Ready(Ok(done)) => Ok(Some(done)),
            Poll::Ready(Err(error)) => Err(Failure::new(MARCATO_UNDELIVERED, error)),
        }
    }

    /// Returns the fate of the stream, once it is certain. It takes no more bytes.
    pub(crate) fn delivery(&self, runtime: &Handle) -> Option<Result<(), Failure>> {
        let stream = lock(&self.stream).take();
        self.fate.poll(runtime, || async move {
            let Some(mut stream) = stream else {
                return Err(Failure::invalid("the stream's fate has been told"));
            };
            stream.finish().await?;
            stream.acknowledged().await.map_err(Failure::from)
        })
    }

    pub(crate) fn reprioritise(&self, priority: Priority) -> Result<(), Failure> {
        let mut stream = lock(&self.stream);
        let stream = stream.as_mut().ok_or_else(|| Failure::invalid("the stream has ended"))?;
        Ok(stream.reprioritise(priority)?)
    }
}

/// Stream of the peer.
pub(crate) struct Incoming {
    stream: Mutex<LongMessage>,
    read: Waker,
}

impl Incoming {
    pub(crate) fn new(stream: LongMessage, list: &Arc<ReadyList>, number: u64) -> Self {
        Self { stream: Mutex::new(stream), read: list.waker(number, MARCATO_ON_READ) }
    }

    /// Reads into `buffer`, and returns how many bytes: zero at the end of the stream.
    pub(crate) fn read(&self, runtime: &Handle, buffer: &mut [u8]) -> Result<Option<usize>, Failure> {
        let mut buffer = ReadBuf::new(buffer);
        let _entered = runtime.enter();
        let mut stream = lock(&self.stream);
        match Pin::new(&mut *stream).poll_read(&mut task::Context::from_waker(&self.read), &mut buffer) {
            Poll::Pending => Ok(None),
            Poll::Ready(Ok(())) => Ok(Some(buffer.filled().len())),
            Poll::Ready(Err(error)) => Err(Failure::new(MARCATO_LOST, error)),
        }
    }
}

/// Request of this end, which waits for its reply.
pub(crate) struct Reply {
    reply: Slot<Result<Received, Failure>>,
    task: Mutex<Option<JoinHandle<Result<Received, RequestError>>>>,
}

impl Reply {
    pub(crate) fn new(
        runtime: &Handle,
        connection: Connection,
        message: Message,
        list: &Arc<ReadyList>,
        number: u64,
    ) -> Self {
        let task = runtime.spawn(async move { connection.request(message).await });
        Self { reply: Slot::new(list, number, MARCATO_ON_REPLY), task: Mutex::new(Some(task)) }
    }

    pub(crate) fn take(&self, runtime: &Handle) -> Option<Result<Received, Failure>> {
        let task = lock(&self.task).take().map(Withdrawn);
        self.reply.poll(runtime, || async move {
            let Some(mut task) = task else { return Err(Failure::invalid("the reply has been taken")) };
            match (&mut task.0).await {
                Ok(reply) => reply.map_err(Failure::from),
                Err(error) => Err(Failure::new(MARCATO_LOST, error)),
            }
        })
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        drop(lock(&self.task).take().map(Withdrawn));
    }
}

/// Request that is withdrawn when nobody waits for its reply any more.
struct Withdrawn(JoinHandle<Result<Received, RequestError>>);

impl Drop for Withdrawn {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Request of the peer, which waits for a reply of this end.
pub(crate) struct Call {
    pub(crate) content: Received,
    request: Mutex<Option<Request>>,
}

impl Call {
    pub(crate) fn new(request: Request) -> Self {
        Self { content: request.message().clone(), request: Mutex::new(Some(request)) }
    }

    /// Replies as soon as there is room.
    pub(crate) fn reply(&self, runtime: &Handle, message: Message) -> Result<(), Failure> {
        let request = lock(&self.request).take();
        let request = request.ok_or_else(|| Failure::invalid("the request has its reply already"))?;
        runtime.spawn(async move { request.reply(message).await });
        Ok(())
    }
}

/// Returns a message of these bytes.
pub(crate) fn message(data: &[u8], priority: Priority) -> Message {
    Message::new(Bytes::copy_from_slice(data)).with_priority(priority)
}
