// Package outline describes the statically known part of the value of an expression. `router check`
// uses it to find mistakes in the data of a sink that understands it.
package outline

import "github.com/deltarouter/deltarouter/pkg/config"

// Outliner is a [plugins.Kind] of sinks that understand the data of events. Outline finds mistakes
// in the literals of an event about an object of one of the resources, and returns the parts of
// objects that the sink would write, which the caller compares with their schemas.
type Outliner interface {
	Outline(node config.Node, data *Outline, resources []string) ([]Problem, []Written)
}

// Outline is the literal part of the value of an expression, known without an evaluation.
type Outline struct {
	At           At
	Text         *string // the value is this text
	Members      []Member
	IsMap, IsAll bool // IsMap: the value is a map with Members; IsAll: it has no other members
}

// Member is a member of a map with a literal key.
type Member struct {
	Key   string
	At    At // of the key
	Value Outline
}

// At is a position in the text of an expression or of a define that it uses.
type At struct {
	Define       string // empty: the expression itself
	Line, Column int    // as cel.Issue counts
}

// Member returns a member of a map; nil: there is none with that literal key.
func (o *Outline) Member(key string) *Member {
	for i := range o.Members {
		if o.Members[i].Key == key {
			return &o.Members[i]
		}
	}
	return nil
}

// Problem is a mistake in the value of an expression.
type Problem struct {
	At      At
	Message string
}

// Written is a part of an object that a sink would write.
type Written struct {
	Resource string // as the configuration writes it; empty: see Named
	Own      bool   // of the object of the delta
	// Named identifies an object that the event names; empty: it is computed.
	Named       string
	Cluster     string // identifies the cluster; empty: that of the router
	Subresource string
	Applies     bool // by server-side apply
	Body        *Outline
}
