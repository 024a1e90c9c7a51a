//! What a client sees: connections and their deadlines, and the API over a real socket.

mod connections;
mod deadlines;
