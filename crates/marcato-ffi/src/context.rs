//! Context of a program: its thread, its objects and its list of what is ready.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use marcato_net::{Config, Endpoint, LocalAddress, Message, Priority, ServerSecurity, Target};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::failure::{self, Failure};
use crate::objects::{Call, Connected, Incoming, Listening, Object, Outgoing, Receipt, Reply};
use crate::ready::{ReadyList, lock};

/// Most objects of a context. A program that forgets to release them gets an error before the machine has no memory.
const MOST_OBJECTS: usize = 1 << 20;

/// Context of a program. Opaque to C.
pub struct Context {
    runtime: Option<Runtime>,
    pub(crate) ready: Arc<ReadyList>,
    objects: Mutex<Objects>,
}

#[derive(Default)]
struct Objects {
    /// Number of the newest object: numbers are never used again.
    newest: u64,
    by_number: HashMap<u64, Object>,
}

/// Looks up an object of one kind; the others are an error.
macro_rules! lookup {
    ($name:ident, $variant:ident, $type:ty, $kind:literal) => {
        pub(crate) fn $name(&self, number: u64) -> Result<Arc<$type>, Failure> {
            match lock(&self.objects).by_number.get(&number) {
                Some(Object::$variant(object)) => Ok(Arc::clone(object)),
                _ => Err(Failure::unknown(number, $kind)),
            }
        }
    };
}

impl Context {
    pub(crate) fn new() -> io::Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("marcato").enable_all().build()?;
        Ok(Self { runtime: Some(runtime), ready: ReadyList::new()?, objects: Mutex::default() })
    }

    pub(crate) fn runtime(&self) -> &Handle {
        // It is taken when the context is dropped, and not before.
        self.runtime.as_ref().map(Runtime::handle).unwrap_or_else(|| unreachable!("the context is dropped"))
    }

    lookup!(endpoint, Endpoint, Listening, "endpoint");
    lookup!(connection, Connection, Connected, "connection");
    lookup!(outgoing, Outgoing, Outgoing, "stream that this end opened");
    lookup!(incoming, Incoming, Incoming, "stream of the peer");
    lookup!(receipt, Receipt, Receipt, "receipt");
    lookup!(reply, Reply, Reply, "request of this end");
    lookup!(call, Call, Call, "request of the peer");

    /// Adds the object that `make` makes of its number.
    pub(crate) fn add(&self, make: impl FnOnce(u64) -> Object) -> Result<u64, Failure> {
        let mut objects = lock(&self.objects);
        if objects.by_number.len() >= MOST_OBJECTS {
            return Err(failure::full(MOST_OBJECTS));
        }
        objects.newest += 1;
        let number = objects.newest;
        objects.by_number.insert(number, make(number));
        Ok(number)
    }

    /// Forgets an object.
    pub(crate) fn release(&self, number: u64) -> Result<(), Failure> {
        let object = lock(&self.objects).by_number.remove(&number);
        let _entered = self.runtime().enter();
        object.map(drop).ok_or_else(|| Failure::unknown(number, "object"))
    }

    /// Takes the next entry of the ready list whose object has not been released.
    pub(crate) fn next(&self) -> Option<(u64, u32)> {
        loop {
            let signal = self.ready.next()?;
            if lock(&self.objects).by_number.contains_key(&signal.object) {
                return Some((signal.object, signal.event));
            }
        }
    }

    pub(crate) fn listen(
        &self,
        config: &Config,
        at: &[LocalAddress],
        security: &ServerSecurity,
    ) -> Result<u64, Failure> {
        let endpoint = self.runtime().block_on(Endpoint::listen(config, at, security))?;
        self.add(|number| Object::Endpoint(Arc::new(Listening::new(endpoint, &self.ready, number))))
    }

    pub(crate) fn connect(&self, config: Config, target: Target) -> Result<u64, Failure> {
        self.add(|number| {
            let connecting = self.runtime().spawn(async move { Endpoint::connect(&config, target).await });
            Object::Connection(Arc::new(Connected::connecting(connecting, &self.ready, number)))
        })
    }

    /// Takes the next connection of an endpoint's clients; `None` if there is none yet.
    pub(crate) fn accept(&self, endpoint: u64) -> Result<Option<u64>, Failure> {
        let Some(accepted) = self.endpoint(endpoint)?.accept(self.runtime()) else { return Ok(None) };
        let accepted = accepted?;
        self.add(|number| Object::Connection(Arc::new(Connected::accepted(accepted, &self.ready, number))))
            .map(Some)
    }

    /// Sends a message; `None` if its level is full. The number is that of its receipt, or zero if none is wanted.
    pub(crate) fn send(
        &self,
        connection: u64,
        message: Message,
        receipt: bool,
    ) -> Result<Option<u64>, Failure> {
        let Some(sent) = self.connection(connection)?.send(self.runtime(), message)? else { return Ok(None) };
        if !receipt {
            return Ok(Some(0));
        }
        self.add(|number| Object::Receipt(Arc::new(Receipt::new(self.runtime(), sent, &self.ready, number))))
            .map(Some)
    }

    pub(crate) fn open(&self, connection: u64, priority: Priority) -> Result<Option<u64>, Failure> {
        let Some(connection) = self.connection(connection)?.open(self.runtime())? else { return Ok(None) };
        let stream = connection.open_stream(priority)?;
        self.add(|number| Object::Outgoing(Arc::new(Outgoing::new(stream, &self.ready, number)))).map(Some)
    }

    /// Takes the next stream of the peer, with its priority.
    pub(crate) fn accept_stream(&self, connection: u64) -> Result<Option<(u64, Priority)>, Failure> {
        let Some(stream) = self.connection(connection)?.accept_stream(self.runtime())? else {
            return Ok(None);
        };
        let priority = stream.priority();
        let number =
            self.add(|number| Object::Incoming(Arc::new(Incoming::new(stream, &self.ready, number))))?;
        Ok(Some((number, priority)))
    }

    pub(crate) fn request(&self, connection: u64, message: Message) -> Result<Option<u64>, Failure> {
        let Some(connection) = self.connection(connection)?.open(self.runtime())? else { return Ok(None) };
        self.add(|number| {
            Object::Reply(Arc::new(Reply::new(self.runtime(), connection, message, &self.ready, number)))
        })
        .map(Some)
    }

    /// Takes the next request of the peer, with its number.
    pub(crate) fn accept_request(&self, connection: u64) -> Result<Option<(u64, Arc<Call>)>, Failure> {
        let Some(request) = self.connection(connection)?.accept_request(self.runtime())? else {
            return Ok(None);
        };
        let call = Arc::new(Call::new(request));
        let number = self.add(|_| Object::Call(Arc::clone(&call)))?;
        Ok(Some((number, call)))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let objects = std::mem::take(&mut lock(&self.objects).by_number);
        if let Some(runtime) = self.runtime.take() {
            let entered = runtime.enter();
            drop(objects);
            drop(entered);
            // Connections say that they have ended; a peer that does not hear it waits for its idle time-out.
            runtime.shutdown_timeout(Duration::from_millis(100));
        }
    }
}
