package pipeline

// stands reports whether a route does nothing more: it is paused, or not ready, or all that it owes waits for room in one that stands. No
// lock is held.
func (p *Pipeline) stands(r *route) bool {
	r.mu.Lock()
	stands := r.paused != "" || !r.settled && !r.ready()
	r.mu.Unlock()
	if stands {
		return true
	}
	now := p.now.Load()
	var behind uint64 // the sinks that are routes which stand
	for i, s := range r.cfg.Sinks {
		if fed := now.fed[s.Feeds]; fed != nil && fed != r && p.stands(fed) {
			behind |= 1 << i
		}
	}
	return behind != 0 && r.waitsFor(behind)
}

// waitsFor reports whether nothing of what the route owes goes on while these sinks, a bit each, take nothing.
func (r *route) waitsFor(sinks uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.heldBack {
		if r.heldBack[i].IsZero() {
			sinks &^= 1 << i // it had room the last time
		}
	}
	all := uint64(1)<<len(r.cfg.Sinks) - 1
	switch {
	case sinks == 0, r.busy > 0, r.q.ages[pending].len > 0, r.q.ages[settling].len > 0:
		return false
	case r.q.readyLen > 0 && sinks != all, r.q.gated.head != nil, r.q.restLen > 0:
		return false
	case r.q.tailed() && r.q.headLen() < r.cfg.Capacity:
		return false
	}
	for e := r.q.ages[attempted].head; e != nil; e = e.links[byAge].next {
		if e.lane.lane.head == e && e.closed|sinks != all {
			return false
		}
	}
	return true
}
