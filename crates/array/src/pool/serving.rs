//! Starting the flows of an open pool.

use std::rc::Rc;

use crate::engine::serving::Serving;
use crate::pool::recovery::Recovered;

impl Serving {
    pub fn start(recovered: Recovered) -> Rc<Serving> {
        let engine = recovered.engine;
        let serving = Rc::new(Serving::new(Rc::clone(&engine), recovered.rejected));
        let io = engine.io.clone();
        io.spawn(Rc::clone(&serving).watch_flow());
        io.spawn(Rc::clone(&engine).losses_flow());
        io.spawn(Rc::clone(&engine).probe_flow());
        if !engine.standing.is_read_only() {
            io.spawn(Rc::clone(&engine).answer_flow());
            io.spawn(Rc::clone(&engine).destage_flow());
            io.spawn(Rc::clone(&engine).checkpoint_flow());
            io.spawn(Rc::clone(&engine).membership_flow());
            io.spawn(Rc::clone(&engine).seal_flow());
            io.spawn(Rc::clone(&engine).repair_flow());
            io.spawn(Rc::clone(&engine).missed_flow());
            io.spawn(Rc::clone(&engine).rebuild_flow());
            io.spawn(Rc::clone(&engine).scrub_flow());
            io.spawn(Rc::clone(&engine).reclaim_flow());
            io.spawn(Rc::clone(&engine).moving_flow());
            io.spawn(Rc::clone(&engine).hospital_flow());
        }
        serving
    }
}
