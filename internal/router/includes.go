package router

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/kubestatus"
)

// rejections has the fragments with mistakes that the last load of the configuration left out.
type rejections struct {
	now atomic.Pointer[[]compile.Rejected]
}

// all returns them.
func (r *rejections) all() []compile.Rejected {
	if now := r.now.Load(); now != nil {
		return *now
	}
	return nil
}

// each calls f for each prefix with rejected files, or with rejected objects, with the first of
// them and their number.
func (r *rejections) each(objects bool, f func(prefix string, first *compile.Rejected, n int)) {
	all := slices.DeleteFunc(slices.Clone(r.all()), func(one compile.Rejected) bool { return objects != (one.Fragment.Object != nil) })
	count := make(map[string]int)
	for i := range all {
		count[all[i].Fragment.Scope.Prefix]++
	}
	for i := range all {
		prefix := all[i].Fragment.Scope.Prefix
		if n := count[prefix]; n > 0 {
			f(prefix, &all[i], n)
			delete(count, prefix)
		}
	}
}

// checks returns a check for /readyz and the status for each prefix: the name of an include, the
// namespace of Routes, or clusterRoutes. It does not make the router unready: the other routes run.
func (r *rejections) checks() (checks []api.Check) {
	of := func(objects bool, kind, many string) {
		r.each(objects, func(prefix string, first *compile.Rejected, n int) {
			c := api.Check{Name: kind + "/" + prefix, Message: first.String()}
			if n > 1 {
				c.Message += fmt.Sprintf(" (%d %s have mistakes)", n, many)
			}
			checks = append(checks, c)
		})
	}
	of(false, "includes", "files")
	of(true, "customResources", "objects")
	return checks
}

// conditions returns the conditions for an operator. The problems quote the text of the included
// files only.
func (r *rejections) conditions() (all []kubestatus.Condition) {
	r.each(false, func(prefix string, first *compile.Rejected, _ int) {
		all = append(all, kubestatus.Condition{
			Reason: kubestatus.ConfigRejected, Subject: prefix, Message: fmt.Sprintf("a file of include %q was rejected: %s", prefix, first),
		})
	})
	return all
}

// reportIncludes reports the included files with mistakes after a load of the configuration.
func (r *router) reportIncludes() {
	plan := r.Set.Plan
	r.rejected.now.Store(&plan.Rejected)
	r.Metrics.IncludeRejected.Reset()
	for _, f := range plan.Config.Fragments {
		if f.Object != nil {
			continue // its status reports it
		}
		r.Metrics.IncludeRejected.WithLabelValues(f.Scope.Prefix).Set(0)
	}
	for i := range plan.Rejected {
		one := &plan.Rejected[i]
		if one.Fragment.Object != nil {
			continue
		}
		r.Metrics.IncludeRejected.WithLabelValues(one.Fragment.Scope.Prefix).Inc()
		for _, p := range one.Problems {
			r.Log.Error("an included file was rejected", "include", one.Fragment.Scope.Prefix, "former", one.Former, "err", p.Error())
		}
	}
}
