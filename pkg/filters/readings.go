package filters

import (
	"github.com/deltarouter/deltarouter/internal/expr"
	"github.com/deltarouter/deltarouter/internal/expr/equality"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// readings are the values that the fields of a delta have. A table reads each field once per delta,
// and evaluates equal filters once; a filter by itself reads as it goes.
type readings struct {
	delta   *event.Delta
	fields  []reading // by the table's number of the field
	answers []answered
	read    []int // which ones are set
	asked   []int
	budget  expr.Budget // of all filters together
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

// forget lets go of the delta.
func (r *readings) forget() {
	for _, number := range r.read {
		r.fields[number] = reading{}
	}
	for _, number := range r.asked {
		r.answers[number] = answered{}
	}
	r.budget.Refill()
	r.delta, r.read, r.asked = nil, r.read[:0], r.asked[:0]
}

// judgement is what a filter's equalities say of a delta.
type judgement uint8

const (
	unknown judgement = iota // the expression has to be evaluated
	no
	yes
)

// judge looks at the equalities, as the rules of [CEL] say. numbers are those of their fields in
// the table; nil: there is none.
func (f *CEL) judge(r *readings, numbers []int) judgement {
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
		case state == equality.Missing && missing >= 0: // the first one counts
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
