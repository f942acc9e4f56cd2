//! Scheduler, block manager and prefix cache, on a simulated KV memory instead of a model.
mod blocks;
mod rules;
mod schedules;
mod simulation;
