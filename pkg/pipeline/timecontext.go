package pipeline

import "time"

// timeContext is the context of what time does, which nobody calls: it never ends, and has nothing.
type timeContext struct{}

// Deadline implements context.Context.
func (timeContext) Deadline() (at time.Time, ok bool) { return at, false }

// Done implements context.Context.
func (timeContext) Done() <-chan struct{} { return nil }

// Err implements context.Context.
func (timeContext) Err() error { return nil }

// Value implements context.Context.
func (timeContext) Value(any) any { return nil }
