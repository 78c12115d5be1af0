package app

import (
	"fmt"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/expr"
)

// checkKept refuses to read what a source with cache: metadata does not have. It would be an absent field, so a filter would never match
// and an index would be empty.
func (c *compiler) checkKept(p *plan) {
	for name, source := range p.sources {
		for index, programs := range source.indexes {
			for i, program := range programs {
				c.checkReads(&c.cfg.Sources[name].Indexes[index][i], program, name)
			}
		}
	}
	for i := range p.routes {
		r := &p.routes[i]
		for _, source := range r.From {
			c.checkReads(r.Filter, r.filter, source)
			c.checkReads(r.Emit, r.emit, source)
			c.checkReads(r.Key, r.key, source)
		}
	}
}

func (c *compiler) checkReads(e *config.Expr, program *expr.Program, source string) {
	if s := c.cfg.Sources[source]; program == nil || s == nil || s.Cache != config.CacheMetadata {
		return
	}
	for _, read := range program.Reads() {
		if slices.Contains([]string{"apiVersion", "kind", "metadata"}, read.Field) {
			continue
		}
		at := e
		if define, ok := c.cfg.Define[read.Define]; ok {
			at = &define
		}
		c.problems = append(c.problems, at.Problem(read.Line, read.Column, fmt.Sprintf(
			"%s is not there: source %q has cache: metadata, so its objects come as apiVersion, kind and metadata alone; give it cache: full",
			read.Field, source)))
	}
}
