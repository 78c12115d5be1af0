package reflector

import "sync/atomic"

// Plan decides how the next client-go Reflector starts: it resumes from the state, or it lists. It
// is safe for concurrent use.
type Plan struct {
	// resumable: the first list is not needed, because the store has the saved objects.
	resumable atomic.Bool
	// resumed: the Reflector is about to replace the store by an empty list that stands for it.
	resumed atomic.Bool
	// latest: the next list is the truth, even if it is older than the store.
	latest atomic.Bool
	// unnamed: since the last list, an object arrived whose name could not be read.
	unnamed atomic.Bool
}

// Restore makes the first Reflector resume, if the restored state allows it.
func (p *Plan) Restore(resumable bool) {
	p.latest.Store(true)
	p.resumable.Store(resumable)
}

// MayResume lets the next Reflector resume, if the state allows it and no list is required.
func (p *Plan) MayResume(resumable bool) { p.resumable.Store(resumable && !p.latest.Load()) }

// MustList makes the next Reflector list.
func (p *Plan) MustList() { p.resumable.Store(false) }

// MustListLatest makes the next Reflector list, and take the list as the truth.
func (p *Plan) MustListLatest() {
	p.latest.Store(true)
	p.resumable.Store(false)
}

// Resumable reports whether the next Reflector resumes.
func (p *Plan) Resumable() bool { return p.resumable.Load() }

// Listing records that the Reflector is about to hand over a list of its own.
func (p *Plan) Listing() { p.resumed.Store(false) }

// Resumed records that the Reflector is about to hand over an empty list, which stands for the
// store.
func (p *Plan) Resumed() {
	p.resumed.Store(true)
	p.resumable.Store(false)
}

// TakeResumed reports whether the current list stands for the store.
func (p *Plan) TakeResumed() bool { return p.resumed.Swap(false) }

// SetLatest says that the next list is the truth.
func (p *Plan) SetLatest() { p.latest.Store(true) }

// Latest reports whether the next list is the truth, even if it is older than the store.
func (p *Plan) Latest() bool { return p.latest.Load() }

// Unnamed reports whether an object whose name could not be read arrived since the last list.
func (p *Plan) Unnamed() bool { return p.unnamed.Load() }

// SetUnnamed records that an object arrived whose name could not be read.
func (p *Plan) SetUnnamed() { p.unnamed.Store(true) }

// Done is called when the watch has a state to resume from: a list was applied, or it was resumed.
func (p *Plan) Done() { p.latest.Store(false) }

// Listed is called when a list was applied.
func (p *Plan) Listed() {
	p.unnamed.Store(false)
	p.Done()
}
