//! Pages of queues. They change nothing.
//!
//! A filter on names is asked first, since names are cheap to read; the records of what it lets through are read for the
//! metadata, and only as many as the page still takes. What one page looks at is bounded all the same.

use angarium_cluster::peer_client::QueueCounts;
use angarium_core::error::Error;
use angarium_core::limits as core_limits;
use angarium_core::names::{ProjectId, QueueName, QueueRef};
use angarium_core::page::PageLimit;
use angarium_core::patch::{self, Entries};
use angarium_core::queue::Metadata;

use crate::limits;
use crate::queues::Queues;

/// Which queues a listing wants.
#[derive(Clone, Debug)]
pub struct QueueFilter {
    /// Only those behind this name, which need not be that of a queue.
    pub after: Option<String>,
    /// At most this many.
    pub limit: PageLimit,
    /// Only those whose name has this text in it.
    pub name_part: Option<String>,
    /// Only those whose name begins with this text.
    pub prefix: Option<String>,
    /// Only those whose metadata, as clients see it, has these texts, numbers or booleans.
    pub metadata: Vec<(String, String)>,
    /// With their metadata.
    pub is_detailed: bool,
    /// With the number of all queues.
    pub is_counted: bool,
    /// Whether to count the messages of each.
    pub has_counts: bool,
}

impl QueueFilter {
    fn wants_name(&self, name: &QueueName) -> bool {
        self.name_part.as_ref().is_none_or(|part| name.as_str().contains(part.as_str()))
            && self.prefix.as_ref().is_none_or(|prefix| name.as_str().starts_with(prefix.as_str()))
    }

    fn wants_metadata(&self, shown: &Entries) -> bool {
        let is_met =
            |(key, wanted): &(String, String)| shown.get(key).is_some_and(|v| patch::is_equal(v, wanted));
        self.metadata.iter().all(is_met)
    }

    /// Whether names are looked at that are not on the page.
    fn filters_names(&self) -> bool {
        self.name_part.is_some() || self.prefix.is_some() || !self.metadata.is_empty()
    }

    /// How many records are read at once: no more than the page takes, unless only they say what belongs on it.
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
    /// Its name.
    pub name: QueueName,
    /// Its metadata with the defaults of the reserved keys, if the listing needed it.
    pub metadata: Option<Entries>,
    /// The numbers of its messages, if they were asked for and its replica answered in time.
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
    /// Behind which name the next page begins; none when there is nothing on this page and nothing behind it.
    pub next: Option<QueueName>,
    /// How many queues the project has, whatever the filters; if it was asked.
    pub count: Option<u64>,
}

/// A page in the making.
struct PageBuilder {
    page: QueuePage,
    /// Names that may still be looked at.
    names: usize,
    /// Records that may still be read.
    records: usize,
}

impl Queues {
    /// A page of the queues of a project, no matter which caller owns their slots: the tree has them all, and shows
    /// every change that was answered before the request came.
    pub async fn queues_list(&self, project: &ProjectId, filter: &QueueFilter) -> Result<QueuePage, Error> {
        // One that only takes a page looks at little more.
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
            filling.page.count = Some(self.0.replica.catalogue.queue_count(project).await?);
        }
        let mut names = self.0.replica.catalogue.queue_names(project, filter.after.as_deref());
        while let Some(batch) = names.next().await? {
            filling.names = filling.names.saturating_sub(batch.len());
            let last = batch.last().cloned();
            let wanted = batch.into_iter().filter(|name| filter.wants_name(name)).collect();
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

    /// Puts those of the names onto the page that belong there. True when the page is at its end, and states where the
    /// next one begins.
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
