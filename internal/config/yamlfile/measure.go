package yamlfile

import (
	"fmt"

	"gopkg.in/yaml.v3"
)

// measureAll refuses a document that is too deep, that contains itself, or whose expanded aliases
// are too large.
func measureAll(root *yaml.Node) *Mistake {
	m := measurer{known: map[*yaml.Node]measured{}}
	total := m.measure(root)
	at := Mistake{At: Place{root.Line, root.Column}}
	switch {
	case m.cycle != nil:
		at.At = Place{m.cycle.Line, m.cycle.Column}
		at.Message = "the value of anchor &" + m.cycle.Anchor + " contains itself: remove the alias *" + m.cycle.Anchor + " inside of it"
	case total.depth > maxDepth:
		at.Message = fmt.Sprintf("is nested more than %d deep", maxDepth)
	case total.size > maxExpanded:
		at.Message = "is larger than 16 MiB with its aliases written out: remove aliases of aliases"
	default:
		return nil
	}
	return &at
}

type measured struct{ size, depth int }

type measurer struct {
	known map[*yaml.Node]measured // size 0: being measured
	cycle *yaml.Node
}

// measure visits each node once, even if many aliases refer to it.
func (m *measurer) measure(n *yaml.Node) measured {
	if n.Kind == yaml.AliasNode {
		if seen, ok := m.known[n.Alias]; ok && seen.size == 0 {
			m.cycle = n.Alias
			return seen
		}
		return m.measure(n.Alias)
	}
	if seen, ok := m.known[n]; ok {
		return seen
	}
	m.known[n] = measured{}
	total := measured{size: 16 + len(n.Value)}
	for _, child := range n.Content {
		c := m.measure(child)
		total.size = min(total.size+c.size, 2*maxExpanded)
		total.depth = max(total.depth, c.depth)
	}
	total.depth++
	m.known[n] = total
	return total
}
