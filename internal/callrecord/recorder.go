package callrecord

import "github.com/deltarouter/deltarouter/pkg/event"

// Recorder keeps the answers of the host to a guest, for the record of a failed call: of all calls since
// the start of the guest while these are few, and else of the last call. Its memory is used again.
type Recorder struct {
	start   opening
	answers []Answer       // of all calls
	deltas  []*event.Delta // of all calls
	calls   []recordedCall
	numbers []byte // random ones, the data of answers
	size    int    // with that of the start
	earlier int    // calls that are not kept
	before  int    // deltas of these calls
	cut     bool   // answers of the last call are missing
	lent    bool   // a record has the memory
	secret  bool   // a call had a Secret

	restarted bool // the guest has the state of its start again
}

// opening is the start of a guest.
type opening struct {
	done    bool
	answers []Answer
	size    int
	cut     bool // answers are missing
}

// recordedCall is a call: where its deltas and answers begin.
type recordedCall struct {
	deltas, answers int
	clock           Clock
}

// Restarted says that the guest has the state again that it had after its start.
func (r *Recorder) Restarted() { r.restarted = true }

// Begin begins a call with deltas of a size.
func (r *Recorder) Begin(batch []*event.Delta, size int, clock Clock) {
	if !r.start.done { // the answers so far are those to the start
		r.start = opening{true, r.answers, r.size, r.cut}
		r.answers, r.numbers, r.cut = nil, nil, false
	}
	switch {
	case r.restarted:
		r.forget(0, 0)
	case r.full(size) && len(r.calls) > 0:
		r.forget(r.earlier+len(r.calls), r.before+len(r.deltas))
	}
	r.calls = append(r.calls, recordedCall{len(r.deltas), len(r.answers), clock})
	r.deltas = append(r.deltas, batch...)
	for _, d := range batch {
		r.Saw(d.Object())
	}
	r.size += size + AnswerSize
}

// full reports whether the record of a call with deltas of a size cannot have the calls before it.
func (r *Recorder) full(size int) bool {
	return r.earlier > 0 || r.cut || r.secret || r.size-r.start.size+size > MaxHistory
}

// Trim frees the deltas and answers of a call that has succeeded, unless later records have them.
func (r *Recorder) Trim() {
	if r.full(0) {
		r.forget(r.earlier+len(r.calls), r.before+len(r.deltas))
	}
}

// Saw is called with each object of an answer: there is no record of a call with a Secret, because
// dead letters reach the disk.
func (r *Recorder) Saw(o *event.Object) {
	of := o.Resource()
	r.secret = r.secret || of == nil || of.Group == "" && of.Resource == "secrets"
}

// forget removes all calls. earlier and before are the numbers of calls and deltas since the start
// of the guest.
func (r *Recorder) forget(earlier, before int) {
	if r.lent {
		r.answers, r.deltas, r.calls, r.numbers, r.lent = nil, nil, nil, nil, false
	}
	clear(r.answers)
	clear(r.deltas)
	r.answers, r.deltas, r.calls, r.numbers = r.answers[:0], r.deltas[:0], r.calls[:0], r.numbers[:0]
	r.size, r.cut, r.secret, r.restarted, r.earlier, r.before = r.start.size, false, false, false, earlier, before
}

// Add appends an answer that is not known yet, and returns its place, or -1 if it does not fit.
func (r *Recorder) Add(function, request string) int {
	if r.cut || r.size+AnswerSize > MaxSize {
		r.cut = true
		return -1
	}
	r.size += AnswerSize
	r.answers = append(r.answers, Answer{Function: function, Request: Checksum(request), Status: Unanswered})
	return len(r.answers) - 1
}

// Set completes an answer. If the data does not fit, it removes the answer.
func (r *Recorder) Set(at int, status int32, fuel, value int64, data []byte) {
	if at < 0 {
		return
	}
	if r.cut || r.size+len(data) > MaxSize {
		r.answers, r.cut = r.answers[:at], true
		return
	}
	r.size += len(data)
	a := &r.answers[at]
	a.Status, a.Fuel, a.Value, a.Data = status, fuel, value, data
}

// Copied returns a copy of random numbers to record, or nil if they do not fit.
func (r *Recorder) Copied(numbers []byte) []byte {
	if r.cut || r.size+len(numbers) > MaxSize {
		r.cut = true
		return nil
	}
	from := len(r.numbers)
	r.numbers = append(r.numbers, numbers...)
	return r.numbers[from:len(r.numbers):len(r.numbers)]
}

// Record returns the record of the last call, or nil if there was none, or one with a Secret.
func (r *Recorder) Record() *Record {
	if len(r.calls) == 0 || r.secret {
		return nil
	}
	r.lent = true
	rec := &Record{Start: r.start.answers, Earlier: r.earlier, Before: r.before, Incomplete: r.cut || r.start.cut, Calls: make([]Call, len(r.calls))}
	for i, c := range r.calls {
		deltas, answers := len(r.deltas), len(r.answers)
		if i+1 < len(r.calls) {
			deltas, answers = r.calls[i+1].deltas, r.calls[i+1].answers
		}
		rec.Calls[i] = Call{Batch: r.deltas[c.deltas:deltas:deltas], Clock: c.clock, Answers: r.answers[c.answers:answers:answers]}
	}
	return rec
}
