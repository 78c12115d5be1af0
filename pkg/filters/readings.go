package filters

import (
	"time"

	"github.com/deltarouter/deltarouter/internal/allowance"
	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/equality"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// readings caches the values of the fields of a delta. A table reads each field once per delta, and
// evaluates equal filters once. A filter without a table reads each field when it needs it.
type readings struct {
	delta   *event.Delta
	fields  []reading // indexed by the table's number of the field
	answers []answered
	read    []int // the numbers of the fields that are set
	asked   []int
	budgets []budget // indexed by the table's number of the budget
	charged []int    // the numbers of the budgets that may be less than full
}

// budget is the budget of the entries of one prefix for a delta.
type budget struct {
	cel.Budget

	owner Allowance     // nil: it was not asked yet, or there is none
	left  int           // of the allowance of the owner when the first evaluation began
	took  time.Duration // of the evaluations
}

type reading struct {
	value string
	state equality.Reading
	done  bool
}

type answered struct {
	answer
	done bool
}

func (r *readings) of(f *equality.Field, number int) (string, equality.Reading) {
	if number < 0 {
		return f.Read(r.delta)
	}
	at := &r.fields[number]
	if !at.done {
		at.value, at.state = f.Read(r.delta)
		at.done = true
		r.read = append(r.read, number)
	}
	return at.value, at.state
}

// price returns the price of the evaluations so far.
func (b *budget) price() int { return allowance.Price(b.Spent(), b.took) }

// touch returns a budget for an evaluation.
func (r *readings) touch(number int) *budget {
	if n := len(r.charged); n == 0 || r.charged[n-1] != number {
		r.charged = append(r.charged, number)
	}
	return &r.budgets[number]
}

// spent reports whether the allowance of an owner has nothing left for another evaluation. The
// owner is asked once per delta.
func (r *readings) spent(number int, owner Allowance) bool {
	b := r.touch(number)
	if b.owner == nil {
		b.owner, b.left = owner, owner.Left()
	}
	return b.price() >= b.left
}

// forget resets r for the next delta.
func (r *readings) forget() {
	for _, number := range r.read {
		r.fields[number] = reading{}
	}
	for _, number := range r.asked {
		r.answers[number] = answered{}
	}
	for _, number := range r.charged {
		b := &r.budgets[number]
		if b.owner != nil {
			b.owner.Charge(b.price())
		}
		*b = budget{}
	}
	r.delta, r.read, r.asked, r.charged = nil, r.read[:0], r.asked[:0], r.charged[:0]
}

// judgement is the result of the equalities of a filter for a delta.
type judgement uint8

const (
	unknown judgement = iota // the expression must be evaluated
	no
	yes
)

// testEqualities tests the equalities by the rules of [CEL]. numbers are the table's numbers of
// their fields; nil: there is no table.
func (f *CEL) testEqualities(r *readings, numbers []int) judgement {
	missing, missed, unclear := -1, "", false
	for i := range f.equalities {
		e, number := &f.equalities[i], -1
		if numbers != nil {
			number = numbers[i]
		}
		value, state := r.of(&e.Field, number)
		switch {
		case state == equality.Known:
			if !e.Holds(value) {
				return no
			}
		case state == equality.Missing && missing >= 0: // the first one is counted
		case state == equality.Missing && e.Leading:
			missing, missed = i, value
		default:
			unclear = true
		}
	}
	switch {
	case unclear:
		return unknown
	case missing >= 0:
		if f.absent() {
			f.log(r.delta, f.equalities[missing].Absent(missed))
		}
		return no
	case f.rest:
		return unknown
	}
	return yes
}
