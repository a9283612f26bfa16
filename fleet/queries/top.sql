-- The stacks with most bytes over all recordings, by the function that called the allocator.
with
  sums as (
    select stack, sum(METRIC_bytes) as bytes from sites where METRIC_bytes > 0 group by stack
    order by bytes desc, stack limit ROWS
  ),
  -- In how many recordings they are: counted for those few alone.
  spread as (
    select sites.stack, count(distinct sites.recording) as recordings
    from sites join sums on sums.stack = sites.stack where sites.METRIC_bytes > 0 group by sites.stack
  ),
  innermost as (select stack, min(FIRST_FRAME) as frame from stacks group by stack),
  named as (
    select frame, min(function) as function, min(file) as file, min(line) as line from frames where level = 0 group by frame
  )
select sums.bytes, spread.recordings, named.function, named.file, named.line
from sums join spread on spread.stack = sums.stack left join innermost on innermost.stack = sums.stack
  left join named on named.frame = innermost.frame
order by sums.bytes desc, spread.recordings, named.function, named.line
