package cli

import (
	"cmp"
	"log/slog"
	"path/filepath"

	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/config"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// takeover is how a running node takes settings over that belong together.
type takeover struct {
	paths []string
	// prepare does what can fail, and returns what cannot.
	prepare func(r *reloader, to *config.Config) (apply func(), err error)
}

// always is a takeover that cannot fail.
func always(apply func(r *reloader, to *config.Config)) func(*reloader, *config.Config) (func(), error) {
	return func(r *reloader, to *config.Config) (func(), error) { return func() { apply(r, to) }, nil }
}

// must logs the failure of what was checked before.
func (r *reloader) must(err error) {
	if err != nil {
		r.logger.Error("setting_not_changed", "error", err.Error())
	}
}

// takeovers are those of all settings that internal/config marks live, which a test
// holds against each other. Certificates of the ingress are not among them: it looks
// at their files by itself.
var takeovers = []takeover{
	{[]string{"log.level"}, func(r *reloader, to *config.Config) (func(), error) {
		var level slog.Level
		err := level.UnmarshalText([]byte(to.Log.Level))
		return func() { r.level.Set(level) }, err
	}},
	{[]string{"api_token"}, prepareToken},
	{[]string{"dashboard.read_only"}, always(func(r *reloader, to *config.Config) {
		r.node.api.SetDashboardReadOnly(to.Dashboard.ReadOnly)
	})},
	{[]string{"allow_private", "allow_http", "nat64_prefixes", "egress.deny", "egress.single_label_hosts"}, preparePolicy},
	{[]string{"http3", "http3_origins"}, always(func(r *reloader, to *config.Config) {
		r.must(r.node.engine.SetHTTP3(selectorConfig(to).Mode))
	})},
	{[]string{"limits.in_flight", "limits.slow_in_flight"}, always(func(r *reloader, to *config.Config) {
		r.must(r.node.engine.SetInFlight(to.Limits.InFlight, to.Limits.SlowInFlight))
	})},
	{[]string{"limits.per_tenant", "limits.per_subscriber", "timeouts.attempt"}, always(func(r *reloader, to *config.Config) {
		r.node.engine.SetDefaults(engine.Defaults{
			Concurrency: to.Limits.PerSubscriber, Timeout: to.Timeouts.Attempt, MaxShare: to.Limits.PerTenant,
		})
	})},
	{[]string{"breaker.failures", "breaker.window", "breaker.open_for", "breaker.open_max"}, always(func(r *reloader, to *config.Config) {
		r.must(r.node.engine.SetBreaker(schedConfig(to).Breaker))
	})},
	{[]string{"operations.tenant"}, always(func(r *reloader, to *config.Config) {
		r.node.engine.SetOperator(to.Operations.Tenant)
	})},
	{[]string{"retention.events", "retention.dead_letters"}, always(func(r *reloader, to *config.Config) {
		r.node.engine.SetRetention(storageConfig(to).Retention)
	})},
	{[]string{"ingress.tenant_per_second", "ingress.tenant_burst"}, always(func(r *reloader, to *config.Config) {
		r.node.engine.SetTenantQuota(tenantQuota(to))
	})},
	{[]string{"ingress.control_plane_token"}, always(func(r *reloader, to *config.Config) {
		r.must(r.node.engine.SetControlPlaneToken(signing.NewSecret(to.Ingress.ControlPlaneToken.Reveal())))
	})},
	{[]string{"telemetry.sample_ratio"}, always(func(r *reloader, to *config.Config) {
		if r.traces.Traces != nil {
			r.traces.SetRatio(to.Telemetry.SampleRatio)
		}
	})},
	{[]string{"shutdown_delay"}, always(func(*reloader, *config.Config) {})}, // it is read when a stop begins
}

func prepareToken(r *reloader, to *config.Config) (func(), error) {
	token, err := to.APIToken.Reveal(), error(nil)
	if token == "" {
		token, err = loadToken(filepath.Join(cmp.Or(r.running.Data, to.Data), "api-token"))
	}
	if err != nil {
		return nil, err
	}
	return func() { r.must(r.node.api.SetTokens([]string{token})) }, nil
}

func preparePolicy(r *reloader, to *config.Config) (func(), error) {
	policy := guardConfig(to)
	if _, err := netguard.NewPolicy(policy); err != nil {
		return nil, err
	}
	return func() { r.must(r.node.engine.SetAddressPolicy(policy)) }, nil
}
