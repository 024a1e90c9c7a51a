//! Posts, and the slot writer with one batch at a time.

use super::*;

impl World {
    pub(super) fn post(&mut self, sizes: &[u8], life: Life, delay: u32) {
        let messages = sizes.iter().map(|size| self.new_message(*size, life, delay)).collect();
        self.waiting.push_back(Change::Post(messages, Vec::new()));
    }

    /// A message with the next id.
    pub(super) fn new_message(&mut self, size: u8, life: Life, delay: u32) -> Message {
        self.count += 1;
        let body = self.body(size);
        let header = Header {
            id: id(self.count),
            created: self.now,
            ready: self.now.plus_seconds(delay),
            life,
            attempts: 0,
            client: None,
            size: u32::try_from(body.len()).expect("bodies are small"),
            state: if delay > 0 { State::Scheduled } else { State::Ready },
            group: self.group_of(self.count),
            first_claimed: None,
            extras: None,
        };
        Message { header, body }
    }

    pub(super) fn submit_removal(&mut self, ids: Vec<MessageId>) {
        let leaving = self.engine.leaving_claims(&ids).map(RemoveHint::of).collect();
        let is_put_off = |id: &MessageId| {
            let is_claimed = self
                .truth
                .messages
                .get(id)
                .is_some_and(|known| matches!(known.state, MessageState::Claimed(_)));
            let entry = self.pool.entries.get(id).filter(|_| is_claimed);
            entry.is_some_and(|entry| entry.header.state == State::Scheduled)
        };
        self.met.stored_otherwise += u32::from(ids.iter().any(is_put_off));
        self.waiting.push_back(Change::Remove(ids, leaving));
    }

    pub(super) fn send(&mut self) {
        if self.flight.is_some() || self.waiting.is_empty() {
            return;
        }
        let pending: Vec<Change> = self.waiting.drain(..).collect();
        let mut queue = QueueChanges::of(self.queue, self.engine.low());
        let changes = &mut queue.changes;
        for work in &pending {
            match work {
                Change::Post(messages, notes) => {
                    changes.appends.extend_from_slice(messages);
                    changes.notes.extend(notes.iter().map(|(_, note)| note.clone()));
                }
                Change::Forget(ids) => {
                    changes
                        .merge(&Changes::note_removes(ids.iter().map(|(key, _)| dedup::name(key)).collect()));
                }
                Change::Prepare(messages) => changes.appends.extend_from_slice(messages),
                Change::Return(_, headers) | Change::Wake(headers) | Change::MarkInTransfer(headers) => {
                    changes.updates.extend_from_slice(headers);
                }
                Change::Remove(ids, leaving) => {
                    changes.removes.extend_from_slice(ids);
                    changes.remove_hints.extend_from_slice(leaving);
                }
                Change::Depart(id) => changes.removes.push(*id),
                Change::Settle(settle) => settle.add_to(changes),
                Change::Requeue(header) => changes.updates.push(header.clone()),
            }
        }
        let is_noted = |gone: &&(u8, Bytes)| {
            changes.notes.iter().any(|note| (note.kind, &note.key) == (gone.0, &gone.1))
        };
        self.met.forgotten_and_noted += u32::from(changes.note_removes.iter().any(|gone| is_noted(&gone)));
        self.flight = Some(Flight { pending, queue, is_durable: false });
    }

    pub(super) fn apply(&mut self) {
        let Some(flight) = self.flight.as_mut().filter(|flight| !flight.is_durable) else { return };
        flight.is_durable = true;
        self.low = self.low.max(flight.queue.low);
        for message in &flight.queue.changes.appends {
            self.low = self.low.min(message.header.id);
            self.last_id = self.last_id.max(message.header.id);
        }
        for header in flight.queue.changes.updates.iter().filter(|header| header.state == State::Ready) {
            self.low = self.low.min(header.id);
        }
        self.pool.apply(&flight.queue.changes);
        if let Some(driver) = &self.driver {
            driver.apply(&flight.queue, &self.pool);
        }
    }

    /// Reports the outcome of the batch; one that did not become durable has failed.
    pub(super) fn settle(&mut self) {
        let Some(Flight { pending, is_durable, .. }) = self.flight.take() else { return };
        for work in pending {
            match work {
                Change::Post(messages, notes) => self.settle_post(messages, &notes, is_durable),
                Change::Forget(ids) if is_durable => self.engine.dedup_forgotten(&ids),
                Change::Forget(ids) => self.engine.dedup_kept(&ids),
                Change::Return(claim, _) if is_durable => self.set_stage(claim, Stage::HeadersDurable),
                Change::Return(claim, _) => self.release_failed(claim, EndedHeaders::Unwritten),
                Change::Wake(headers) => self.settle_wake(&headers, is_durable),
                Change::MarkInTransfer(headers) => self.settle_transfers(&headers, is_durable),
                Change::Prepare(messages) => self.settle_arrival(messages, is_durable),
                Change::Depart(id) => self.settle_departure(id, is_durable),
                Change::Settle(settle) => self.finish_settle(settle, is_durable),
                Change::Requeue(header) => self.finish_requeue(header, is_durable),
                Change::Remove(ids, _) if is_durable => self.removed(&ids),
                Change::Remove(ids, _) => {
                    self.engine.remove_failed(&ids);
                    ids.iter().for_each(|id| self.truth.remove_failed(*id));
                }
            }
        }
    }

    fn settle_post(&mut self, messages: Vec<Message>, notes: &[(DedupKey, Note)], is_durable: bool) {
        let id = |note: &Note| MessageId::from_bytes(note.value[..].try_into().expect("an id"));
        let duplicates: Vec<(DedupKey, MessageId)> =
            notes.iter().map(|(key, note)| (*key, id(note))).collect();
        if is_durable {
            self.engine.dedup_posted(&duplicates);
            self.posted(messages);
        } else {
            self.engine.dedup_failed(&duplicates);
        }
    }

    pub(super) fn posted(&mut self, messages: Vec<Message>) {
        messages.iter().for_each(|message| self.truth.posted(message.header.clone()));
        self.engine.posted(messages);
    }

    pub(super) fn removed(&mut self, ids: &[MessageId]) {
        let expected: Vec<ClaimId> = ids.iter().filter_map(|id| self.truth.removed(*id)).collect();
        let over = self.engine.removed(ids);
        assert_eq!(over, expected, "claims that have ended");
        self.spent.extend(over);
        self.gone.extend_from_slice(ids);
    }

    pub(super) fn clear_spent(&mut self) {
        for claim in self.spent.drain(..) {
            self.tree.remove(&claim);
        }
    }
}
