"""The first schema."""

from alembic import op

revision = "0001"
down_revision = None

STATEMENTS = (
    """
        CREATE TABLE audit_log (
            audit_id UUID NOT NULL,
            user_id UUID,
            action TEXT NOT NULL,
            subject TEXT NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_audit_log PRIMARY KEY (audit_id)
        )
    """,
    """
        CREATE TABLE call_ids (
            session_id UUID NOT NULL,
            call_id TEXT NOT NULL,
            operation_id UUID NOT NULL,
            CONSTRAINT pk_call_ids PRIMARY KEY (session_id, call_id)
        )
    """,
    """
        CREATE TABLE client_keys (
            session_id UUID NOT NULL,
            client_key BYTEA NOT NULL,
            body_hash BYTEA NOT NULL,
            answer JSONB NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_client_keys PRIMARY KEY (session_id, client_key)
        )
    """,
    """
        CREATE TABLE outbox (
            outbox_id UUID NOT NULL,
            kind TEXT NOT NULL,
            run_id UUID NOT NULL,
            body JSONB NOT NULL,
            sent_at TIMESTAMP WITH TIME ZONE,
            due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            tries INTEGER DEFAULT '0' NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_outbox PRIMARY KEY (outbox_id)
        )
    """,
    """
        CREATE INDEX ix_outbox_due ON outbox (due_at) WHERE sent_at IS NULL
    """,
    """
        CREATE INDEX ix_outbox_run_id ON outbox (run_id)
    """,
    """
        CREATE TABLE payloads (
            payload_id BYTEA NOT NULL,
            key_id TEXT NOT NULL,
            codec TEXT NOT NULL,
            size INTEGER NOT NULL,
            digest BYTEA NOT NULL,
            body BYTEA NOT NULL,
            tokens JSONB DEFAULT '{}' NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_payloads PRIMARY KEY (payload_id)
        )
    """,
    """
        CREATE TABLE spaces (
            space_id UUID NOT NULL,
            name TEXT NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_spaces PRIMARY KEY (space_id)
        )
    """,
    """
        CREATE TABLE connections (
            connection_id UUID NOT NULL,
            space_id UUID NOT NULL,
            name TEXT NOT NULL,
            provider TEXT NOT NULL,
            base_url TEXT,
            secret_id BYTEA,
            models JSONB DEFAULT '[]' NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_connections PRIMARY KEY (connection_id),
            CONSTRAINT uq_connections_space_id_name UNIQUE (space_id, name),
            CONSTRAINT fk_connections_space_id_spaces FOREIGN KEY(space_id) REFERENCES spaces (space_id),
            CONSTRAINT fk_connections_secret_id_payloads FOREIGN KEY(secret_id) REFERENCES payloads (payload_id)
        )
    """,
    """
        CREATE TABLE users (
            user_id UUID NOT NULL,
            space_id UUID NOT NULL,
            name TEXT NOT NULL,
            role TEXT NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_users PRIMARY KEY (user_id),
            CONSTRAINT uq_users_space_id_name UNIQUE (space_id, name),
            CONSTRAINT fk_users_space_id_spaces FOREIGN KEY(space_id) REFERENCES spaces (space_id)
        )
    """,
    """
        CREATE TABLE agents (
            agent_id UUID NOT NULL,
            space_id UUID NOT NULL,
            name TEXT NOT NULL,
            owner_id UUID,
            release_head INTEGER DEFAULT '0' NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_agents PRIMARY KEY (agent_id),
            CONSTRAINT uq_agents_space_id_name UNIQUE (space_id, name),
            CONSTRAINT fk_agents_space_id_spaces FOREIGN KEY(space_id) REFERENCES spaces (space_id),
            CONSTRAINT fk_agents_owner_id_users FOREIGN KEY(owner_id) REFERENCES users (user_id)
        )
    """,
    """
        CREATE TABLE api_keys (
            key_id UUID NOT NULL,
            user_id UUID NOT NULL,
            key_hash BYTEA NOT NULL,
            hint TEXT NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            revoked_at TIMESTAMP WITH TIME ZONE,
            CONSTRAINT pk_api_keys PRIMARY KEY (key_id),
            CONSTRAINT fk_api_keys_user_id_users FOREIGN KEY(user_id) REFERENCES users (user_id),
            CONSTRAINT uq_api_keys_key_hash UNIQUE (key_hash)
        )
    """,
    """
        CREATE INDEX ix_api_keys_user_id ON api_keys (user_id)
    """,
    """
        CREATE TABLE agent_releases (
            release_id UUID NOT NULL,
            agent_id UUID NOT NULL,
            release_no INTEGER NOT NULL,
            release_hash TEXT NOT NULL,
            payload_id BYTEA NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_agent_releases PRIMARY KEY (release_id),
            CONSTRAINT uq_agent_releases_agent_id_release_no UNIQUE (agent_id, release_no),
            CONSTRAINT fk_agent_releases_agent_id_agents FOREIGN KEY(agent_id) REFERENCES agents (agent_id),
            CONSTRAINT fk_agent_releases_payload_id_payloads FOREIGN KEY(payload_id) REFERENCES payloads (payload_id)
        )
    """,
    """
        CREATE TABLE sessions (
            session_id UUID NOT NULL,
            space_id UUID NOT NULL,
            owner_id UUID NOT NULL,
            agent_id UUID NOT NULL,
            title_id BYTEA,
            archived_at TIMESTAMP WITH TIME ZONE,
            input_head BIGINT DEFAULT '0' NOT NULL,
            record_head BIGINT DEFAULT '0' NOT NULL,
            run_head INTEGER DEFAULT '0' NOT NULL,
            parent_id UUID,
            base_run_no INTEGER DEFAULT '0' NOT NULL,
            base_seq BIGINT DEFAULT '0' NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_sessions PRIMARY KEY (session_id),
            CONSTRAINT fk_sessions_space_id_spaces FOREIGN KEY(space_id) REFERENCES spaces (space_id),
            CONSTRAINT fk_sessions_owner_id_users FOREIGN KEY(owner_id) REFERENCES users (user_id),
            CONSTRAINT fk_sessions_agent_id_agents FOREIGN KEY(agent_id) REFERENCES agents (agent_id),
            CONSTRAINT fk_sessions_title_id_payloads FOREIGN KEY(title_id) REFERENCES payloads (payload_id)
        )
    """,
    """
        CREATE INDEX ix_sessions_agent_id ON sessions (agent_id)
    """,
    """
        CREATE INDEX ix_sessions_owner_newest ON sessions (owner_id, session_id)
    """,
    """
        CREATE TABLE runs (
            run_id UUID NOT NULL,
            session_id UUID NOT NULL,
            run_no INTEGER NOT NULL,
            release_id UUID NOT NULL,
            status TEXT NOT NULL,
            phase TEXT NOT NULL,
            end_reason TEXT,
            error JSONB,
            execution_no INTEGER DEFAULT '1' NOT NULL,
            loops INTEGER DEFAULT '0' NOT NULL,
            input_cutoff BIGINT DEFAULT '0' NOT NULL,
            event_head BIGINT DEFAULT '0' NOT NULL,
            input_tokens BIGINT DEFAULT '0' NOT NULL,
            output_tokens BIGINT DEFAULT '0' NOT NULL,
            cached_tokens BIGINT DEFAULT '0' NOT NULL,
            cost NUMERIC,
            usage_unknown INTEGER DEFAULT '0' NOT NULL,
            active_ms BIGINT DEFAULT '0' NOT NULL,
            started_at TIMESTAMP WITH TIME ZONE,
            stop_requested_at TIMESTAMP WITH TIME ZONE,
            ended_at TIMESTAMP WITH TIME ZONE,
            answer_record_id UUID,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_runs PRIMARY KEY (run_id),
            CONSTRAINT uq_runs_session_id_run_no UNIQUE (session_id, run_no),
            CONSTRAINT fk_runs_session_id_sessions FOREIGN KEY(session_id) REFERENCES sessions (session_id),
            CONSTRAINT fk_runs_release_id_agent_releases FOREIGN KEY(release_id) REFERENCES agent_releases
                (release_id)
        )
    """,
    """
        CREATE INDEX ix_runs_active ON runs (run_id) WHERE status IN ('queued', 'running')
    """,
    """
        CREATE UNIQUE INDEX uq_runs_one_active ON runs (session_id) WHERE status IN ('queued', 'running')
    """,
    """
        CREATE TABLE user_inputs (
            input_id UUID NOT NULL,
            session_id UUID NOT NULL,
            input_seq BIGINT NOT NULL,
            kind TEXT NOT NULL,
            payload_id BYTEA NOT NULL,
            origin_run_id UUID,
            received_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_user_inputs PRIMARY KEY (input_id),
            CONSTRAINT uq_user_inputs_session_id_input_seq UNIQUE (session_id, input_seq),
            CONSTRAINT fk_user_inputs_session_id_sessions FOREIGN KEY(session_id) REFERENCES sessions (session_id),
            CONSTRAINT fk_user_inputs_payload_id_payloads FOREIGN KEY(payload_id) REFERENCES payloads (payload_id)
        )
    """,
    """
        CREATE TABLE agent_tasks (
            task_id UUID NOT NULL,
            run_id UUID NOT NULL,
            role_key TEXT NOT NULL,
            parent_operation_id UUID,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_agent_tasks PRIMARY KEY (task_id),
            CONSTRAINT fk_agent_tasks_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (run_id)
        )
    """,
    """
        CREATE INDEX ix_agent_tasks_run_id ON agent_tasks (run_id)
    """,
    """
        CREATE TABLE input_deliveries (
            delivery_id UUID NOT NULL,
            input_id UUID NOT NULL,
            session_id UUID NOT NULL,
            input_seq BIGINT NOT NULL,
            run_id UUID,
            operation_id UUID,
            previous_delivery_id UUID,
            state TEXT NOT NULL,
            context_seq BIGINT,
            delivered_at TIMESTAMP WITH TIME ZONE,
            CONSTRAINT pk_input_deliveries PRIMARY KEY (delivery_id),
            CONSTRAINT fk_input_deliveries_input_id_user_inputs FOREIGN KEY(input_id) REFERENCES user_inputs
                (input_id)
        )
    """,
    """
        CREATE INDEX ix_input_deliveries_input_id ON input_deliveries (input_id)
    """,
    """
        CREATE INDEX ix_input_deliveries_open ON input_deliveries (session_id, input_seq) WHERE state IN ('pending',
            'claimed')
    """,
    """
        CREATE INDEX ix_input_deliveries_run_id ON input_deliveries (run_id)
    """,
    """
        CREATE TABLE operations (
            operation_id UUID NOT NULL,
            session_id UUID NOT NULL,
            run_id UUID NOT NULL,
            context_id UUID NOT NULL,
            purpose TEXT NOT NULL,
            state TEXT NOT NULL,
            loop_no INTEGER NOT NULL,
            ordinal INTEGER DEFAULT '0' NOT NULL,
            name TEXT NOT NULL,
            attempts INTEGER DEFAULT '0' NOT NULL,
            input_cutoff BIGINT,
            view_id UUID,
            view_length INTEGER,
            tail JSONB,
            max_output_tokens INTEGER,
            request_hash BYTEA,
            batch_id UUID,
            call_id TEXT,
            effect TEXT,
            arguments_id BYTEA,
            raw_id BYTEA,
            raw_media_type TEXT,
            transforms JSONB,
            result_id BYTEA,
            whole_id BYTEA,
            prepared JSONB,
            verdict JSONB,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_operations PRIMARY KEY (operation_id),
            CONSTRAINT fk_operations_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (run_id),
            CONSTRAINT fk_operations_arguments_id_payloads FOREIGN KEY(arguments_id) REFERENCES payloads (payload_id),
            CONSTRAINT fk_operations_raw_id_payloads FOREIGN KEY(raw_id) REFERENCES payloads (payload_id),
            CONSTRAINT fk_operations_result_id_payloads FOREIGN KEY(result_id) REFERENCES payloads (payload_id),
            CONSTRAINT fk_operations_whole_id_payloads FOREIGN KEY(whole_id) REFERENCES payloads (payload_id)
        )
    """,
    """
        CREATE INDEX ix_operations_batch_id ON operations (batch_id)
    """,
    """
        CREATE INDEX ix_operations_run ON operations (run_id, created_at, ordinal)
    """,
    """
        CREATE TABLE run_events (
            run_id UUID NOT NULL,
            run_seq BIGINT NOT NULL,
            type TEXT NOT NULL,
            body JSONB NOT NULL,
            at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_run_events PRIMARY KEY (run_id, run_seq),
            CONSTRAINT fk_run_events_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (run_id)
        )
    """,
    """
        CREATE TABLE tool_batches (
            batch_id UUID NOT NULL,
            run_id UUID NOT NULL,
            context_id UUID NOT NULL,
            size INTEGER NOT NULL,
            consumed BOOLEAN DEFAULT false NOT NULL,
            CONSTRAINT pk_tool_batches PRIMARY KEY (batch_id),
            CONSTRAINT fk_tool_batches_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (run_id)
        )
    """,
    """
        CREATE INDEX ix_tool_batches_open ON tool_batches (run_id) WHERE NOT consumed
    """,
    """
        CREATE TABLE artifacts (
            operation_id UUID NOT NULL,
            ordinal INTEGER NOT NULL,
            media_type TEXT NOT NULL,
            payload_id BYTEA NOT NULL,
            CONSTRAINT pk_artifacts PRIMARY KEY (operation_id, ordinal),
            CONSTRAINT fk_artifacts_operation_id_operations FOREIGN KEY(operation_id) REFERENCES operations
                (operation_id),
            CONSTRAINT fk_artifacts_payload_id_payloads FOREIGN KEY(payload_id) REFERENCES payloads (payload_id)
        )
    """,
    """
        CREATE TABLE attempts (
            operation_id UUID NOT NULL,
            attempt_no INTEGER NOT NULL,
            state TEXT NOT NULL,
            started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            first_output_at TIMESTAMP WITH TIME ZONE,
            ended_at TIMESTAMP WITH TIME ZONE,
            usage JSONB,
            cost NUMERIC,
            error JSONB,
            fragment_id BYTEA,
            CONSTRAINT pk_attempts PRIMARY KEY (operation_id, attempt_no),
            CONSTRAINT fk_attempts_operation_id_operations FOREIGN KEY(operation_id) REFERENCES operations
                (operation_id),
            CONSTRAINT fk_attempts_fragment_id_payloads FOREIGN KEY(fragment_id) REFERENCES payloads (payload_id)
        )
    """,
    """
        CREATE TABLE manifests (
            operation_id UUID NOT NULL,
            estimated_input_tokens BIGINT NOT NULL,
            input_limit BIGINT NOT NULL,
            counting_method TEXT NOT NULL,
            exact BOOLEAN NOT NULL,
            transforms JSONB NOT NULL,
            validation TEXT NOT NULL,
            notes JSONB DEFAULT '[]' NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_manifests PRIMARY KEY (operation_id),
            CONSTRAINT fk_manifests_operation_id_operations FOREIGN KEY(operation_id) REFERENCES operations
                (operation_id)
        )
    """,
    """
        CREATE TABLE role_contexts (
            context_id UUID NOT NULL,
            session_id UUID NOT NULL,
            run_id UUID NOT NULL,
            task_id UUID NOT NULL,
            instance TEXT NOT NULL,
            record_head BIGINT DEFAULT '0' NOT NULL,
            revision BIGINT DEFAULT '0' NOT NULL,
            chain BYTEA NOT NULL,
            view_id UUID,
            view_length INTEGER DEFAULT '0' NOT NULL,
            view_tokens BIGINT DEFAULT '0' NOT NULL,
            active_snapshot_id UUID,
            material_mark INTEGER DEFAULT '0' NOT NULL,
            CONSTRAINT pk_role_contexts PRIMARY KEY (context_id),
            CONSTRAINT fk_role_contexts_session_id_sessions FOREIGN KEY(session_id) REFERENCES sessions (session_id),
            CONSTRAINT fk_role_contexts_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (run_id),
            CONSTRAINT fk_role_contexts_task_id_agent_tasks FOREIGN KEY(task_id) REFERENCES agent_tasks (task_id)
        )
    """,
    """
        CREATE INDEX ix_role_contexts_run_id ON role_contexts (run_id)
    """,
    """
        CREATE TABLE context_records (
            record_id UUID NOT NULL,
            context_id UUID NOT NULL,
            context_seq BIGINT NOT NULL,
            session_id UUID NOT NULL,
            seq BIGINT NOT NULL,
            run_id UUID NOT NULL,
            role TEXT NOT NULL,
            kind TEXT NOT NULL,
            payload_id BYTEA NOT NULL,
            operation_id UUID,
            result_key TEXT,
            input_id UUID,
            call_id TEXT,
            status TEXT,
            chain BYTEA NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_context_records PRIMARY KEY (record_id),
            CONSTRAINT uq_context_records_context_id_context_seq UNIQUE (context_id, context_seq),
            CONSTRAINT uq_context_records_session_id_seq UNIQUE (session_id, seq),
            CONSTRAINT fk_context_records_context_id_role_contexts FOREIGN KEY(context_id) REFERENCES role_contexts
                (context_id),
            CONSTRAINT fk_context_records_payload_id_payloads FOREIGN KEY(payload_id) REFERENCES payloads (payload_id)
        )
    """,
    """
        CREATE INDEX ix_context_records_run_id ON context_records (run_id)
    """,
    """
        CREATE UNIQUE INDEX uq_context_records_input ON context_records (context_id, input_id) WHERE input_id IS NOT
            NULL
    """,
    """
        CREATE UNIQUE INDEX uq_context_records_operation ON context_records (operation_id, kind, result_key) NULLS NOT
            DISTINCT WHERE operation_id IS NOT NULL
    """,
    """
        CREATE TABLE context_revisions (
            context_id UUID NOT NULL,
            revision BIGINT NOT NULL,
            record_watermark BIGINT NOT NULL,
            mutation_ids UUID[] DEFAULT '{}' NOT NULL,
            cause TEXT NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_context_revisions PRIMARY KEY (context_id, revision),
            CONSTRAINT fk_context_revisions_context_id_role_contexts FOREIGN KEY(context_id) REFERENCES role_contexts
                (context_id)
        )
    """,
    """
        CREATE TABLE request_views (
            view_id UUID NOT NULL,
            context_id UUID NOT NULL,
            cause TEXT NOT NULL,
            before_view_id UUID,
            before_length INTEGER,
            inherited INTEGER,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_request_views PRIMARY KEY (view_id),
            CONSTRAINT fk_request_views_context_id_role_contexts FOREIGN KEY(context_id) REFERENCES role_contexts
                (context_id)
        )
    """,
    """
        CREATE INDEX ix_request_views_context_id ON request_views (context_id)
    """,
    """
        CREATE TABLE compaction_episodes (
            episode_id UUID NOT NULL,
            session_id UUID NOT NULL,
            run_id UUID NOT NULL,
            context_id UUID NOT NULL,
            operation_id UUID,
            release_id UUID,
            through_run_no INTEGER,
            stop_requested_at TIMESTAMP WITH TIME ZONE,
            source TEXT NOT NULL,
            causes TEXT[] NOT NULL,
            view_id UUID,
            view_length INTEGER DEFAULT '0' NOT NULL,
            covered INTEGER[] DEFAULT '{}' NOT NULL,
            folds INTEGER,
            context_revision BIGINT DEFAULT '0' NOT NULL,
            expected_snapshot_id UUID,
            estimated BIGINT DEFAULT '0' NOT NULL,
            material BIGINT DEFAULT '0' NOT NULL,
            target JSONB,
            prompt_version TEXT NOT NULL,
            estimator_id TEXT DEFAULT '' NOT NULL,
            plan_id BYTEA,
            blocks INTEGER,
            cursor INTEGER DEFAULT '0' NOT NULL,
            summary_id BYTEA,
            truncated BOOLEAN DEFAULT false NOT NULL,
            status TEXT NOT NULL,
            outcome TEXT,
            failure JSONB,
            tokens_after BIGINT,
            reaches_target BOOLEAN,
            under_trigger BOOLEAN,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            ended_at TIMESTAMP WITH TIME ZONE,
            CONSTRAINT pk_compaction_episodes PRIMARY KEY (episode_id),
            CONSTRAINT fk_compaction_episodes_session_id_sessions FOREIGN KEY(session_id) REFERENCES sessions
                (session_id),
            CONSTRAINT fk_compaction_episodes_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (run_id),
            CONSTRAINT fk_compaction_episodes_context_id_role_contexts FOREIGN KEY(context_id) REFERENCES
                role_contexts (context_id),
            CONSTRAINT fk_compaction_episodes_release_id_agent_releases FOREIGN KEY(release_id) REFERENCES
                agent_releases (release_id),
            CONSTRAINT fk_compaction_episodes_view_id_request_views FOREIGN KEY(view_id) REFERENCES request_views
                (view_id),
            CONSTRAINT fk_compaction_episodes_plan_id_payloads FOREIGN KEY(plan_id) REFERENCES payloads (payload_id),
            CONSTRAINT fk_compaction_episodes_summary_id_payloads FOREIGN KEY(summary_id) REFERENCES payloads
                (payload_id)
        )
    """,
    """
        CREATE INDEX ix_compaction_episodes_context ON compaction_episodes (context_id, created_at)
    """,
    """
        CREATE INDEX ix_compaction_episodes_operation ON compaction_episodes (operation_id)
    """,
    """
        CREATE INDEX ix_compaction_episodes_run ON compaction_episodes (run_id, created_at)
    """,
    """
        CREATE UNIQUE INDEX uq_compaction_episodes_one_idle ON compaction_episodes (session_id) WHERE operation_id IS
            NULL AND status IN ('queued', 'running')
    """,
    """
        CREATE TABLE context_mutations (
            mutation_id UUID NOT NULL,
            context_id UUID NOT NULL,
            revision BIGINT NOT NULL,
            record_id UUID NOT NULL,
            payload_id BYTEA NOT NULL,
            source TEXT NOT NULL,
            cause TEXT NOT NULL,
            outdated UUID[] DEFAULT '{}' NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_context_mutations PRIMARY KEY (mutation_id),
            CONSTRAINT fk_context_mutations_context_id_role_contexts FOREIGN KEY(context_id) REFERENCES role_contexts
                (context_id),
            CONSTRAINT fk_context_mutations_record_id_context_records FOREIGN KEY(record_id) REFERENCES
                context_records (record_id),
            CONSTRAINT fk_context_mutations_payload_id_payloads FOREIGN KEY(payload_id) REFERENCES payloads
                (payload_id)
        )
    """,
    """
        CREATE INDEX ix_context_mutations_context ON context_mutations (context_id, revision)
    """,
    """
        CREATE INDEX ix_context_mutations_record ON context_mutations (record_id, revision)
    """,
    """
        CREATE TABLE session_views (
            run_id UUID NOT NULL,
            session_id UUID NOT NULL,
            run_no INTEGER NOT NULL,
            whole BOOLEAN NOT NULL,
            observed_seq BIGINT NOT NULL,
            estimator_id TEXT NOT NULL,
            through_seq BIGINT,
            view_id UUID,
            view_length INTEGER,
            outdated_at TIMESTAMP WITH TIME ZONE,
            CONSTRAINT pk_session_views PRIMARY KEY (run_id),
            CONSTRAINT fk_session_views_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (run_id),
            CONSTRAINT fk_session_views_session_id_sessions FOREIGN KEY(session_id) REFERENCES sessions (session_id),
            CONSTRAINT fk_session_views_view_id_request_views FOREIGN KEY(view_id) REFERENCES request_views (view_id)
        )
    """,
    """
        CREATE INDEX ix_session_views_farthest ON session_views (session_id, through_seq)
    """,
    """
        CREATE TABLE view_items (
            view_id UUID NOT NULL,
            pos INTEGER NOT NULL,
            kind TEXT NOT NULL,
            source_id UUID,
            run_no INTEGER,
            revision BIGINT,
            payload_id BYTEA NOT NULL,
            tokens INTEGER NOT NULL,
            transform TEXT,
            CONSTRAINT pk_view_items PRIMARY KEY (view_id, pos),
            CONSTRAINT fk_view_items_view_id_request_views FOREIGN KEY(view_id) REFERENCES request_views (view_id),
            CONSTRAINT fk_view_items_payload_id_payloads FOREIGN KEY(payload_id) REFERENCES payloads (payload_id)
        )
    """,
    """
        CREATE TABLE idle_blocks (
            operation_id UUID NOT NULL,
            episode_id UUID NOT NULL,
            CONSTRAINT pk_idle_blocks PRIMARY KEY (operation_id),
            CONSTRAINT fk_idle_blocks_operation_id_operations FOREIGN KEY(operation_id) REFERENCES operations
                (operation_id),
            CONSTRAINT fk_idle_blocks_episode_id_compaction_episodes FOREIGN KEY(episode_id) REFERENCES
                compaction_episodes (episode_id)
        )
    """,
    """
        CREATE INDEX ix_idle_blocks_episode_id ON idle_blocks (episode_id)
    """,
    """
        CREATE TABLE snapshots (
            snapshot_id UUID NOT NULL,
            episode_id UUID NOT NULL,
            session_id UUID NOT NULL,
            context_id UUID NOT NULL,
            generation INTEGER NOT NULL,
            previous_id UUID,
            text_id BYTEA NOT NULL,
            message_id BYTEA NOT NULL,
            tokens INTEGER NOT NULL,
            ranges JSONB NOT NULL,
            revisions JSONB NOT NULL,
            runs INTEGER[] NOT NULL,
            pieces INTEGER NOT NULL,
            activated BOOLEAN NOT NULL,
            outdated_at TIMESTAMP WITH TIME ZONE,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            CONSTRAINT pk_snapshots PRIMARY KEY (snapshot_id),
            CONSTRAINT uq_snapshots_context_id_generation UNIQUE (context_id, generation),
            CONSTRAINT uq_snapshots_episode_id UNIQUE (episode_id),
            CONSTRAINT fk_snapshots_episode_id_compaction_episodes FOREIGN KEY(episode_id) REFERENCES
                compaction_episodes (episode_id),
            CONSTRAINT fk_snapshots_session_id_sessions FOREIGN KEY(session_id) REFERENCES sessions (session_id),
            CONSTRAINT fk_snapshots_context_id_role_contexts FOREIGN KEY(context_id) REFERENCES role_contexts
                (context_id),
            CONSTRAINT fk_snapshots_text_id_payloads FOREIGN KEY(text_id) REFERENCES payloads (payload_id),
            CONSTRAINT fk_snapshots_message_id_payloads FOREIGN KEY(message_id) REFERENCES payloads (payload_id)
        )
    """,
    """
        CREATE INDEX ix_snapshots_session_id ON snapshots (session_id)
    """,
    """
        CREATE TABLE snapshot_pieces (
            snapshot_id UUID NOT NULL,
            piece TEXT NOT NULL,
            ordinal INTEGER NOT NULL,
            digest BYTEA NOT NULL,
            run_no INTEGER NOT NULL,
            context_id UUID,
            context_seq BIGINT,
            CONSTRAINT pk_snapshot_pieces PRIMARY KEY (snapshot_id, piece),
            CONSTRAINT fk_snapshot_pieces_snapshot_id_snapshots FOREIGN KEY(snapshot_id) REFERENCES snapshots
                (snapshot_id)
        )
    """,
    """
        CREATE INDEX ix_snapshot_pieces_piece ON snapshot_pieces (piece)
    """,
)


def upgrade() -> None:
    """Create every table and index."""
    for statement in STATEMENTS:
        op.execute(statement)
