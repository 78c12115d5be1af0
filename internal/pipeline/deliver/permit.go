package deliver

import (
	"context"
	"fmt"
	"time"
)

// permitRetry is the delay of entries that were not permitted. Usually the pipeline ends before.
const permitRetry = time.Second

// errNotPermitted is the result of a write that did not begin. It counts as the end of a context,
// so nothing expires by it, and no breaker learns of it.
var errNotPermitted = fmt.Errorf("no delivery is permitted to this process now: %w", context.Canceled)

// permits asks whether a call of the handler or of a sink may begin.
func (b *Batch) permits() bool { return b.env.Permit == nil || b.env.Permit() }
