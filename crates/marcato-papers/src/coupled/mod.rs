//! Coupled mode: completion of urgent messages beside background data of the same connection.

#[cfg_attr(not(test), expect(dead_code, reason = "no experiment runs it yet"))]
mod kernel;
