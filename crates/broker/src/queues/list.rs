//! Pages of queues. They change nothing.
//!
//! Filters on names apply first, since names are cheap to read. Records of the remaining queues are read for the
//! metadata, and only as many as the page still takes. The reads of one page are bounded.

use angarium_cluster::peer_client::QueueCounts;
use angarium_core::error::Error;
use angarium_core::limits as core_limits;
use angarium_core::names::{ProjectId, QueueKind, QueueName, QueueRef};
use angarium_core::page::PageLimit;
use angarium_core::patch::{self, Entries};
use angarium_core::queue::Metadata;

use crate::limits;
use crate::queues::Queues;

/// Which queues a listing returns.
#[derive(Clone, Debug)]
pub struct QueueFilter {
    /// Only queues of this kind: queues, or topics.
    pub kind: QueueKind,
    /// Only queues behind this name, which need not be the name of a queue.
    pub after: Option<String>,
    /// Maximum of queues on the page.
    pub limit: PageLimit,
    /// Only queues whose name contains this text.
    pub name_part: Option<String>,
    /// Only queues whose name begins with this text.
    pub prefix: Option<String>,
    /// Only queues whose metadata, as clients see it, has these texts, numbers or booleans.
    pub metadata: Vec<(String, String)>,
    /// Whether to return the metadata of each.
    pub is_detailed: bool,
    /// Whether to return the number of all queues.
    pub is_counted: bool,
    /// Whether to count the messages of each.
    pub has_counts: bool,
}

impl QueueFilter {
    fn wants_name(&self, name: &QueueName) -> bool {
        self.name_part.as_ref().is_none_or(|part| name.source().contains(part.as_str()))
            && self.prefix.as_ref().is_none_or(|prefix| name.source().starts_with(prefix.as_str()))
    }

    /// The stored name behind which the page begins. The text need not be a name.
    fn after(&self) -> Option<String> {
        let after = self.after.as_deref()?;
        let topic = QueueName::topic(after).ok().filter(|_| self.kind == QueueKind::Topic);
        Some(topic.map_or_else(|| after.to_owned(), |topic| topic.as_str().to_owned()))
    }

    fn wants_metadata(&self, shown: &Entries) -> bool {
        let is_met =
            |(key, wanted): &(String, String)| shown.get(key).is_some_and(|v| patch::is_equal(v, wanted));
        self.metadata.iter().all(is_met)
    }

    /// Whether names that are not on the page may be read.
    fn filters_names(&self) -> bool {
        self.name_part.is_some() || self.prefix.is_some() || !self.metadata.is_empty()
    }

    /// Number of records to read at once: at most as many as the page takes, unless a filter on the metadata needs
    /// more.
    pub(crate) fn step(&self) -> usize {
        if self.metadata.is_empty() { self.limit.get() } else { core_limits::LISTING_RECORDS }
    }

    fn needs_records(&self) -> bool {
        self.is_detailed || !self.metadata.is_empty()
    }
}

/// A queue in a listing.
#[derive(Clone, Debug)]
pub struct QueueView {
    /// Name of the queue.
    pub name: QueueName,
    /// Its metadata with the defaults of the reserved keys, if the listing needed it.
    pub metadata: Option<Entries>,
    /// Its numbers of messages, if they were requested and its replica answered in time.
    pub counts: Option<QueueCounts>,
}

impl QueueView {
    pub(crate) fn named(name: QueueName) -> Self {
        Self { name, metadata: None, counts: None }
    }
}

/// A page of queues.
#[derive(Clone, Debug, Default)]
pub struct QueuePage {
    /// Queues in order of their names.
    pub queues: Vec<QueueView>,
    /// The name behind which the next page begins; none when this page is empty and nothing is behind it.
    pub next: Option<QueueName>,
    /// Number of all queues of the project, regardless of filters, if it was requested.
    pub count: Option<u64>,
}

/// A page that is being filled.
struct PageBuilder {
    page: QueuePage,
    /// Names that may still be read.
    names: usize,
    /// Records that may still be read.
    records: usize,
}

impl Queues {
    /// Returns a page of the queues of a project, for any owners of their slots. It is read from the tree, which shows
    /// every change that was answered before the request arrived.
    pub async fn queues_list(&self, project: &ProjectId, filter: &QueueFilter) -> Result<QueuePage, Error> {
        // A request without filters and counts reads little more than its page, and needs no admission.
        let is_bounded = filter.filters_names() || filter.has_counts;
        let _turn = if is_bounded { Some(self.0.quotas.admit_listing(project).await?) } else { None };
        self.0.replica.catalogue.catch_up().await?;
        let mut page = self.queue_page(project, filter).await?;
        if filter.has_counts {
            let queue = |view: &QueueView| QueueRef { project: project.clone(), name: view.name.clone() };
            let counts = self.0.counting.queue_counts(page.queues.iter().map(queue).collect()).await;
            page.queues.iter_mut().zip(counts).for_each(|(view, counts)| view.counts = counts);
        }
        Ok(page)
    }

    async fn queue_page(&self, project: &ProjectId, filter: &QueueFilter) -> Result<QueuePage, Error> {
        let page = QueuePage::default();
        let mut filling = PageBuilder { page, names: limits::LISTING_NAMES, records: limits::LISTING_QUEUES };
        if filter.is_counted {
            filling.page.count = Some(self.0.replica.catalogue.queue_count(project, filter.kind).await?);
        }
        let mut names = self.0.replica.catalogue.queue_names(project, filter.after().as_deref());
        while let Some(batch) = names.next().await? {
            filling.names = filling.names.saturating_sub(batch.len());
            // No page names the queue of a subscription.
            let last = batch.last().map(QueueName::of_source);
            let is_own = |name: &QueueName| name.kind() == filter.kind && filter.wants_name(name);
            let wanted = batch.into_iter().filter(is_own).collect();
            if self.fill(project, filter, wanted, &mut filling).await? {
                return Ok(filling.page);
            }
            if filling.names == 0 {
                filling.page.next = last;
                return Ok(filling.page);
            }
        }
        filling.page.next = filling.page.queues.last().map(|queue| queue.name.clone());
        Ok(filling.page)
    }

    /// Puts the queues among `wanted` that pass the filters onto the page. Returns true when the page is complete; it
    /// then has the position of the next one.
    async fn fill(
        &self,
        project: &ProjectId,
        filter: &QueueFilter,
        wanted: Vec<QueueName>,
        filling: &mut PageBuilder,
    ) -> Result<bool, Error> {
        let mut rest = wanted.as_slice();
        while !rest.is_empty() {
            let (some, behind) = rest.split_at(filter.step().min(filling.records).min(rest.len()));
            rest = behind;
            let page = &mut filling.page;
            page.queues.extend(self.queue_views(project, some, filter).await?);
            page.queues.truncate(filter.limit.get());
            if page.queues.len() == filter.limit.get() {
                page.next = page.queues.last().map(|queue| queue.name.clone());
                return Ok(true);
            }
            if !filter.metadata.is_empty() {
                filling.records = filling.records.saturating_sub(some.len());
            }
            if filling.records == 0 {
                page.next = some.last().cloned();
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn queue_views(
        &self,
        project: &ProjectId,
        names: &[QueueName],
        filter: &QueueFilter,
    ) -> Result<Vec<QueueView>, Error> {
        if !filter.needs_records() {
            return Ok(names.iter().map(|name| QueueView::named(name.clone())).collect());
        }
        let queue = |name: &QueueName| QueueRef { project: project.clone(), name: name.clone() };
        let queues: Vec<QueueRef> = names.iter().map(queue).collect();
        let records = self.0.replica.catalogue.queue_records(&queues).await?;
        let mut views = Vec::with_capacity(queues.len());
        for (queue, record) in queues.into_iter().zip(records) {
            let Some(record) = record else { continue };
            let shown = Metadata::stored(record.metadata)?.shown(&self.0.replica.limits);
            if filter.wants_metadata(&shown) {
                views.push(QueueView { metadata: Some(shown), ..QueueView::named(queue.name) });
            }
        }
        Ok(views)
    }
}
