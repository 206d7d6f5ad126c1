mod clients;
mod compound;
mod files;
mod locking;
mod names;
mod opening;
mod recovery;
mod sessions;
