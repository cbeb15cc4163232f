//! CWR: "Performance Evaluation of a New Scheduling Model Using Congestion Window Reservation" (Noroozi, Gallistl and
//! Noroozi).
//!
//! What the paper prints, and what a simple model makes of its Table I before anything is run.

pub mod predict;
pub mod published;
