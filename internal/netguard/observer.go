package netguard

// Stage is where a denial happened. Stages form a closed list, for metrics.
type Stage string

// The stages.
const (
	// StageRegister: a URL was refused at registration.
	StageRegister Stage = "register"
	// StageResolve: a host was refused before anything was dialled.
	StageResolve Stage = "resolve"
	// StageHint: an alternative or an address hint was refused.
	StageHint Stage = "hint"
	// StageTCP: DialControl stopped a connect. It should stay at zero, since the
	// address has been judged before.
	StageTCP Stage = "tcp"
	// StageUDP: CheckUDP stopped a QUIC dial. It should stay at zero, too.
	StageUDP Stage = "udp"
)

// Stages returns all stages, in a fixed order.
func Stages() []Stage {
	return []Stage{StageRegister, StageResolve, StageHint, StageTCP, StageUDP}
}

// Denial is one refusal.
type Denial struct {
	// Stage is where.
	Stage Stage
	// Rule is why.
	Rule Rule
	// Err is the *DeniedError or *FieldError that the caller gets. It names a
	// host, so it belongs in a log and not in a label.
	Err error
}

// Observer receives events. A nil func is not called. The funcs are called
// synchronously, from many goroutines, and must not block.
type Observer struct {
	// Denied is called once for each refusal that is reported to a caller.
	Denied func(Denial)
}

func (o Observer) denied(stage Stage, rule Rule, err error) {
	if o.Denied != nil {
		o.Denied(Denial{Stage: stage, Rule: rule, Err: err})
	}
}
